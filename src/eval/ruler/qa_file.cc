#include "src/eval/ruler/qa_file.h"

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::json;

// A value of the file with its path, so that an error says where it is.
class Node {
 public:
  Node(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  Node At(std::string_view key) const {
    if (!json_.is_object() || !json_.contains(key))
      Refuse(std::string("expected a key \"") + std::string(key) + "\"");
    return {json_[key], path_ + "." + std::string(key)};
  }
  Node At(size_t index) const {
    Size();
    if (index >= json_.size()) Refuse("expected more than " + std::to_string(index) + " items");
    return {json_[index], path_ + "[" + std::to_string(index) + "]"};
  }
  size_t Size() const {
    if (!json_.is_array()) Refuse("expected an array");
    return json_.size();
  }
  std::string Text() const {
    if (!json_.is_string()) Refuse("expected a string");
    return json_.get<std::string>();
  }
  bool Bool() const {
    if (!json_.is_boolean()) Refuse("expected true or false");
    return json_.get<bool>();
  }
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kInvalidFile, path_ + ": " + what);
  }

 private:
  const Json& json_;
  std::string path_;
};

template <class Visit>
void ForEach(const Node& array, Visit&& visit) {
  for (size_t i = 0; i < array.Size(); ++i) visit(array.At(i));
}

std::vector<std::string> Unique(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

int64_t IndexOf(const QaData& data, const std::string& document) {
  return std::ranges::lower_bound(data.documents, document) - data.documents.begin();
}

void CheckQuestions(const QaData& data, const std::string& name) {
  if (data.questions.empty()) {
    throw Error(ErrorCode::kInvalidFile, name + ": has no question with an answer");
  }
  if (data.documents.empty()) {
    throw Error(ErrorCode::kInvalidFile,
                name + ": has no documents, of which the prompts of a question are made");
  }
}

void AddParagraph(const Node& paragraph, const std::vector<int64_t>& article, QaData& data) {
  const int64_t own = IndexOf(data, paragraph.At("context").Text());
  ForEach(paragraph.At("qas"), [&](const Node& qa) {
    if (qa.At("is_impossible").Bool()) return;
    QaQuestion& question = data.questions.emplace_back();
    question.text = qa.At("question").Text();
    ForEach(qa.At("answers"),
            [&](const Node& answer) { question.answers.push_back(answer.At("text").Text()); });
    if (question.answers.empty()) qa.Refuse("expected an answer");
    question.documents = {own};
    for (const int64_t i : article) {
      if (i != own) question.related.push_back(i);
    }
  });
}

// A document of HotpotQA: its title and its sentences.
std::string HotpotDocument(const Node& entry) {
  std::string text = entry.At(size_t{0}).Text() + "\n";
  ForEach(entry.At(1), [&](const Node& sentence) { text += sentence.Text(); });
  return text;
}

}  // namespace

QaData ReadSquad(const RulerFile& file) {
  const Json json = ParseJson(file.content, file.name);
  const Node articles = Node(json, file.name + ": ").At("data");
  QaData data;
  ForEach(articles, [&](const Node& article) {
    ForEach(article.At("paragraphs"), [&](const Node& paragraph) {
      data.documents.push_back(paragraph.At("context").Text());
    });
  });
  data.documents = Unique(std::move(data.documents));
  ForEach(articles, [&](const Node& article) {
    std::vector<int64_t> documents;
    ForEach(article.At("paragraphs"), [&](const Node& paragraph) {
      documents.push_back(IndexOf(data, paragraph.At("context").Text()));
    });
    ForEach(article.At("paragraphs"), [&](const Node& p) { AddParagraph(p, documents, data); });
  });
  CheckQuestions(data, file.name);
  return data;
}

QaData ReadHotpot(const RulerFile& file) {
  const Json json = ParseJson(file.content, file.name);
  const Node entries(json, file.name + ": ");
  QaData data;
  ForEach(entries, [&](const Node& entry) {
    ForEach(entry.At("context"),
            [&](const Node& d) { data.documents.push_back(HotpotDocument(d)); });
  });
  data.documents = Unique(std::move(data.documents));
  ForEach(entries, [&](const Node& entry) {
    QaQuestion& question = data.questions.emplace_back();
    question.text = entry.At("question").Text();
    question.answers = {entry.At("answer").Text()};
    ForEach(entry.At("context"),
            [&](const Node& d) { question.documents.push_back(IndexOf(data, HotpotDocument(d))); });
  });
  CheckQuestions(data, file.name);
  return data;
}

}  // namespace ropewalk::internal
