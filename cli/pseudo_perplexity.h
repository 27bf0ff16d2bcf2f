// ropewalk perplexity of a text encoder.
#pragma once

#include "cli/options.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

void RunPseudoPerplexity(const Options& options, const ModelFiles& files);
// UsageError for options of an encoder's perplexity, where the model is a decoder.
void RefuseEncoderOptions(const Options& options);

}  // namespace ropewalk::cli
