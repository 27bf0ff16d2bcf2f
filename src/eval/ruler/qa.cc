// RULER's questions about documents: qa.py.
#include <algorithm>

#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/noise.h"
#include "src/eval/ruler/qa_file.h"

namespace ropewalk::internal {
namespace {

class Qa {
 public:
  explicit Qa(const RulerInput& input)
      : input_(input),
        random_(input.options.seed),
        data_(input.task == "qa_1" ? ReadSquad(input.options.squad)
                                   : ReadHotpot(input.options.hotpot)) {}

  std::vector<RulerSample> Samples(int64_t count) {
    constexpr int64_t kStep = 10;
    if (count > static_cast<int64_t>(data_.questions.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  "ruler:" + input_.task + ": asked for " + std::to_string(count) +
                      " prompts, the file has " + std::to_string(data_.questions.size()) +
                      " questions");
    }
    const auto draw_first = [this](int64_t size) { return Draw(0, size); };
    const double each = static_cast<double>(input_.Tokens(draw_first(kStep))) / kStep;
    const auto most = static_cast<int64_t>(static_cast<double>(input_.length) / each * 3);
    const int64_t size = FitHaystack(input_, kStep, std::max(most, 2 * kStep), 0, draw_first);
    std::vector<RulerSample> samples;
    for (int64_t i = 0; i < count; ++i) {
      samples.push_back(DrawFitting(input_, size, kStep, [&](int64_t n) { return Draw(i, n); }));
    }
    return samples;
  }

 private:
  static bool Has(const std::vector<int64_t>& items, int64_t item) {
    return std::ranges::find(items, item) != items.end();
  }

  // `count` of the candidates behind `chosen`.
  void AddSample(const std::vector<int64_t>& candidates, int64_t count,
                 std::vector<int64_t>& chosen) {
    for (const int64_t i : random_.Sample(static_cast<int64_t>(candidates.size()), count)) {
      chosen.push_back(candidates[static_cast<size_t>(i)]);
    }
  }

  // The documents of a prompt: those of the question, then related ones, then any. All of them, and
  // again from the first, where more are asked for than there are.
  std::vector<int64_t> Choose(const QaQuestion& question, int64_t size) {
    const auto all = static_cast<int64_t>(data_.documents.size());
    std::vector<int64_t> chosen;
    if (size >= all) {
      for (int64_t i = 0; i < size; ++i) chosen.push_back(i % all);
      return chosen;
    }
    chosen = question.documents;
    const int64_t missing = size - static_cast<int64_t>(chosen.size());
    const auto related = static_cast<int64_t>(question.related.size());
    if (missing <= related) {
      AddSample(question.related, missing, chosen);
      return chosen;
    }
    chosen.insert(chosen.end(), question.related.begin(), question.related.end());
    std::vector<int64_t> others;
    for (int64_t i = 0; i < all; ++i) {
      if (!Has(question.documents, i) && !Has(question.related, i)) others.push_back(i);
    }
    AddSample(others, missing - related, chosen);
    return chosen;
  }

  RulerSample Draw(int64_t index, int64_t size) {
    const QaQuestion& question = data_.questions[static_cast<size_t>(index)];
    std::vector<int64_t> chosen = Choose(question, size);
    PythonRandom(input_.options.seed).Shuffle(chosen);
    const std::string head =
        "Answer the question based on the given documents. Only give me the answer and do not "
        "output any other words.\n\n";
    RulerSample sample{head + "The following are given documents.\n\n",
                       {{.text = "\n\n" + head + "Question: " + question.text + " Answer:",
                         .answer = " " + question.answers[0],
                         .references = question.answers}}};
    size_t golden = std::string::npos;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (i > 0) sample.context += "\n\n";
      const bool own = !question.documents.empty() && chosen[i] == question.documents[0];
      if (own) golden = std::min(golden, sample.context.size());
      sample.context += "Document " + std::to_string(i + 1) + ":\n" +
                        data_.documents[static_cast<size_t>(chosen[i])];
    }
    // One document alone holds an answer of SQuAD.
    if (question.documents.size() == 1 && golden != std::string::npos) {
      sample.questions[0].depth =
          static_cast<double>(golden) / static_cast<double>(sample.context.size());
    }
    return sample;
  }

  const RulerInput& input_;
  PythonRandom random_;
  QaData data_;
};

}  // namespace

std::vector<RulerSample> QaSamples(const RulerInput& input, int64_t count) {
  return Qa(input).Samples(count);
}

}  // namespace ropewalk::internal
