// Patterns in Oniguruma's Ruby syntax, which Hugging Face's tokenizers use, as PCRE2 reads them.
#pragma once

#include <string>
#include <string_view>

namespace ropewalk::internal {

// The pattern for PCRE2 with the same matches. Error, which begins with `where`, for what PCRE2
// would read differently and is not rewritten.
std::string PcrePattern(std::string_view pattern, const std::string& where);

}  // namespace ropewalk::internal
