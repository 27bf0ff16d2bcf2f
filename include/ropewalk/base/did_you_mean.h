// Suggestions for unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

// The closest of `known` to `name` by edit distance, as ' (did you mean "x"?)'; empty if none is
// near.
std::string DidYouMean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace ropewalk
