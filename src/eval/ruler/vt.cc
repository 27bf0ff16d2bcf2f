// RULER's variable tracking: variable_tracking.py with one chain of four hops.
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/noise.h"

namespace ropewalk::internal {
namespace {

constexpr int64_t kHops = 4;
constexpr int64_t kExampleLength = 500;  // tokens that the example may have
constexpr char kExampleValue[] = "12345";

void ReplaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

class Vt {
 public:
  explicit Vt(const RulerInput& input)
      : input_(input),
        random_(input.options.seed),
        numpy_(static_cast<uint32_t>(input.options.seed)) {}

  std::vector<RulerSample> Samples(int64_t count) {
    MakeExample();
    const int64_t step = input_.length < 4096 ? 5 : 10;
    const auto draw = [this](int64_t size) { return Draw(size, false); };
    const int64_t size = Fit(input_, step, input_.Tokens(example_), draw);
    std::vector<RulerSample> samples;
    for (int64_t i = 0; i < count; ++i) {
      samples.push_back(DrawFitting(input_, size, step, [&](int64_t hay) {
        RulerSample sample = Draw(hay, false);
        sample.context = NewExample() + "\n" + sample.context;
        return sample;
      }));
    }
    return samples;
  }

 private:
  template <class DrawSize>
  int64_t Fit(const RulerInput& input, int64_t step, int64_t more, const DrawSize& draw) {
    const double each = static_cast<double>(input.Tokens(draw(step))) / static_cast<double>(step);
    const auto most = static_cast<int64_t>(static_cast<double>(input.length) / each * 3);
    return FitHaystack(input, step, std::max(most, 2 * step), more, draw);
  }

  // A prompt with its answer that stands in front of every prompt, with other names each time.
  void MakeExample() {
    RulerInput input = input_;
    input.length = kExampleLength;
    input.max_new_tokens = 0;
    input.task += "'s example";
    constexpr int64_t kStep = 5;
    const auto draw = [this](int64_t size) { return Draw(size, true); };
    const RulerSample example = DrawFitting(input, Fit(input, kStep, 0, draw), kStep, draw);
    names_ = example.questions[0].references;
    example_ = example.context + example.questions[0].text + " " + Join(names_, " ") + "\n";
  }

  std::string NewExample() {
    std::string text = example_;
    for (const std::string& name : names_) {
      ReplaceAll(text, name, random_.Letters('A', static_cast<int64_t>(name.size())));
    }
    ReplaceAll(text, kExampleValue, Value());
    return text;
  }

  std::string Value() { return std::to_string(numpy_.Int(10000, 99999)); }

  // Names of the chain's variables. A name drawn twice gives RULER a chain without variables behind
  // its first, at which it fails, having drawn a value for each.
  std::vector<std::string> Names(bool example) {
    std::vector<std::string> names;
    const auto add = [&] { names.push_back(random_.Letters('A', example ? 3 : 5)); };
    while (names.size() < kHops + 1) add();
    while (std::set<std::string>(names.begin(), names.end()).size() < kHops + 1) add();
    return names;
  }

  RulerSample Draw(int64_t size, bool example) {
    const std::vector<std::string> names = Names(example);
    const std::string value = example ? kExampleValue : Value();
    if (names.size() > kHops + 1) {
      if (!example) Value();
      throw PythonError("a name was drawn twice");
    }
    std::vector<std::string> chain = {"VAR " + names[0] + " = " + value};
    for (size_t i = 1; i < names.size(); ++i) {
      chain.push_back("VAR " + names[i] + " = VAR " + names[i - 1] + " ");
    }
    return Ask(Insert(size, chain), value, names);
  }

  std::string Insert(int64_t size, const std::vector<std::string>& chain) {
    std::vector<std::string> lines(static_cast<size_t>(size), kNoise);
    std::vector<int64_t> at = random_.Sample(size, static_cast<int64_t>(chain.size()));
    std::ranges::sort(at);
    for (size_t i = 0; i < chain.size(); ++i) {
      lines.insert(lines.begin() + at[i] + static_cast<int64_t>(i), chain[i]);
    }
    return Join(lines, "\n");
  }

  // The prompt ends with a space, and the example has another one in front of the names, so the
  // answer begins with one too.
  static RulerSample Ask(const std::string& lines, const std::string& value,
                         const std::vector<std::string>& names) {
    RulerQuestion question = {
        .text = "\nQuestion: Find all variables that are assigned the value " + value +
                " in the text above. Answer: According to the chain(s) of variable assignment in "
                "the text above, 5 variables are assigned the value " +
                value + ", they are: ",
        .answer = " " + Join(names, " "),
        .references = names};
    return {
        "Memorize and track the chain(s) of variable assignment hidden in the following "
        "text.\n\n" +
            lines,
        {std::move(question)}};
  }

  const RulerInput& input_;
  PythonRandom random_;
  NumpyRandom numpy_;
  std::string example_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<RulerSample> VtSamples(const RulerInput& input, int64_t count) {
  return Vt(input).Samples(count);
}

}  // namespace ropewalk::internal
