// What follows from the cells of a sweep: which method is recommended at each length, why the others
// are not, how far each reaches and what it costs. The rules are those of docs/recommendation.md.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/effective_length.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/statistics.h"

namespace ropewalk {

// Methods are judged by the cells of one type of KV cache, the most precise one that was measured;
// functions of cells below, and the ladder's, leave out the others. What these cost beside it is
// KvCosts'.
KvType RecommendedKv(const std::vector<Cell>& cells);
std::vector<Cell> CellsOf(const std::vector<Cell>& cells, KvType kv);

// The mean of a's loss minus b's, nats per token, over the windows that both have (the first ones),
// each weighing by its scored tokens, with the standard error clustered by window. With one window,
// or none stored, `standard_error` and `p_value` are NaN.
struct PairedDifference {
  double mean = 0;
  double standard_error = 0;
  double p_value = 0;  // of a two-sided paired t test
  int64_t windows = 0;
  bool outside_noise = false;  // p_value below 5 %
};
PairedDifference Compare(const Cell& a, const Cell& b);

// Answers of a method to the questions that another one has answered too. Wins: questions to which
// a's answer has the higher score.
struct PairedAnswers {
  int64_t questions = 0, wins = 0, losses = 0;
  double difference = 0;  // mean score of a minus that of b, over these questions
  double p_value = 1;     // exact two-sided sign test; of right and wrong answers McNemar's
};
PairedAnswers Compare(const TaskResult& a, const TaskResult& b);

// The mean over the key tokens that both have of a's loss minus b's, nats per token: a paired t test
// over the windows that have some, in which a window weighs by the number of its key tokens. With
// one such window `standard_error` and `p_value` are NaN.
PairedDifference CompareKeyTokens(const TaskResult& a, const TaskResult& b);

// Whether a task tells methods apart at all.
struct TaskUse {
  std::string task;
  bool counts = false;
  std::string reason = {};  // why it does not count, as a sentence
  // Without scaling at the trained length; NaN where it was not measured there.
  double own_score = std::numeric_limits<double>::quiet_NaN();
};
// In order of first appearance, without key tokens. A task counts if the model can do it without scaling: at the
// shortest length measured (up to the trained one) and at the trained one its score is not
// significantly below 0.5, and at the trained one not 0.
std::vector<TaskUse> TaskUses(const std::vector<Cell>& cells);

enum class Standing : uint8_t {
  kRecommended,
  kTie,              // its loss does not differ significantly from that of the recommended method
  kUntested,         // usable and behind, by one window or one that does not pair: nobody can tell
  kBehind,           // usable, with a significantly higher loss
  kBehindKeyTokens,  // a tie by loss, but its key tokens have a significantly higher one
  kWorseAtTask,      // significantly worse at a task than the best method there
  kUnanswered,       // usable, without answers of a task that counts, which another usable one has
  kNotUsable,
  kLeftRace,
  kNotJudged,  // no scaling at the trained length is missing, or its loss not finite
};
const char* Word(Standing standing);  // "recommended", "tie", ..

// A method's score at a task of one length.
struct TaskVerdict {
  std::string task;
  double score = 0;
  int64_t answers = 0, prompts = 0;
  Interval interval = {};  // Wilson's, 95 %, of answers as independent trials
  bool counts = false;
  bool worse = false;        // significantly below the best method, whose name follows
  std::string against = {};  // the label of the method with the highest score there
  double against_score = 0;
  double p_value = 1;      // of that comparison, by Holm over all of this length
  bool below_own = false;  // significantly below 0.85 times the model's own score
};

// The loss of a method's key tokens at one length.
struct KeyTokenVerdict {
  double nats = 0;            // per key token
  double standard_error = 0;  // clustered by window; NaN for one window
  int64_t tokens = 0;
  int64_t windows = 0;  // that have some
  // Of methods that loss does not tell apart: minus that of the one of them with the lowest loss of
  // key tokens, whose label follows. Absent for this one and for methods that are no tie.
  std::optional<PairedDifference> difference = {};
  std::string against = {};
  double p_value = std::numeric_limits<double>::quiet_NaN();  // by Holm over these methods
};

// A method with a factor at one length.
struct MethodVerdict {
  std::string method;
  double factor = 1;
  double perplexity = 0;
  Standing standing = Standing::kNotJudged;
  std::string reason = {};  // in words, of what is left out
  std::vector<TaskVerdict> tasks = {};
  std::optional<KeyTokenVerdict> key_tokens = {};  // where they were measured
  // Its loss minus that of the recommended method; absent for that one and where none is.
  std::optional<PairedDifference> difference = {};
  // By Holm. NaN where that comparison decided nothing: key tokens chose the recommended method, and
  // this one had been left out before.
  double p_value = std::numeric_limits<double>::quiet_NaN();
  // The true difference, nats per token, that is found in 80 % of sweeps; NaN for one window.
  double detectable = std::numeric_limits<double>::quiet_NaN();
  bool same_plan = false;  // computes what the recommended method does
};

// The score of a task at the trained length with a setting left on, minus that without scaling.
struct TaskCost {
  std::string task;
  PairedAnswers answers = {};
};

// What a type of KV cache costs under one method at one length: differences to RecommendedKv under the
// same method, so that what the method costs is not in them.
struct KvCost {
  std::string method;
  double factor = 1;
  int64_t length = 0;
  KvType kv = KvType::kF32;
  std::string keys = {};  // Cell::kv_keys
  double perplexity = 0;
  PairedDifference loss = {};
  // `loss` minus that of no scaling at this length, window by window: the part of the cache's loss
  // that depends on the method. Absent for no scaling, and where that was not measured.
  std::optional<PairedDifference> beyond_unscaled = {};
  // Of `beyond_unscaled`, by Holm over the methods of the length and type; NaN without it.
  double p_value = std::numeric_limits<double>::quiet_NaN();
  std::vector<TaskCost> tasks = {};
};
// By length, method and type; empty where one type alone was measured. A cell is left out whose method
// was not measured with RecommendedKv, and one whose loss is not finite.
std::vector<KvCost> KvCosts(const std::vector<Cell>& cells);
// For each type one sentence on what it costs at the longest length, and whether that depends on the
// method; empty without costs.
std::string KvText(const std::vector<Cell>& cells);

// What to paste for a type of KV cache; `setting` is empty where the engine has no such type.
struct KvSetting {
  std::string engine, setting, note;
};
std::vector<KvSetting> SettingsFor(KvType kv);

// The recommended method for one target length.
struct Recommendation {
  int64_t length = 0;
  // false: "none" was not measured at the trained length, or its loss is not finite there
  bool judged = true;
  std::string method = {};  // empty: no method is usable, or not judged
  double factor = 1;
  double perplexity = 0;
  std::vector<MethodVerdict> methods = {};  // of this length, by loss
  // Loss at the trained length minus that without scaling, nats per token; NaN where that was not
  // measured, and for "none" itself.
  double trained_length_cost = std::numeric_limits<double>::quiet_NaN();
  std::vector<TaskCost> task_costs = {};  // of the tasks that count; empty as above
  std::vector<KvCost> kv_costs = {};      // of this method here, one for each other type
  int64_t longest_usable = 0;             // of this method over all lengths
  std::string text = {};                  // one paragraph
};
// One for each length beyond the trained one; empty where the trained length is unknown.
std::vector<Recommendation> Recommend(const std::vector<Cell>& cells);

// The longest measured length up to which a method (at its best factor for each length) is usable
// at every measured length from the trained one on. 0: not even there.
struct MethodReach {
  std::string method;
  int64_t longest_usable = 0;
  double factor = 1;  // at that length
  // Loss with that factor at the trained length minus that without scaling; absent where it was not
  // measured, and for "none" itself.
  std::optional<PairedDifference> cost;
  std::vector<TaskCost> task_costs = {};
};
// In order of first appearance; empty where "none" was not measured at the trained length.
std::vector<MethodReach> Reaches(const std::vector<Cell>& cells);

// The score of a method over lengths: the mean of the tasks that count.
struct MethodScores {
  std::string method;
  std::vector<std::string> tasks = {};
  // At each length where all of them were measured; up to the trained length without scaling, beyond
  // with the factor that is best there. Trials: answers.
  std::vector<LengthScore> scores = {};
  EffectiveLength ruler = {},
                  own = {};  // by 0.856, and by 0.85 times the score at the trained length
  // NaN where this method left the race of a length, or lacks one that another method has.
  WeightedAverages averages = {};
};
// In order of first appearance; empty where no task counts.
std::vector<MethodScores> ScoresByLength(const std::vector<Cell>& cells);

// The rules for "usable" and for what is said of differences as text, with the numbers of this
// sweep.
std::string RulesText(const std::vector<Cell>& cells);
// Which tasks do not count and why; empty where all do.
std::string TasksNote(const std::vector<Cell>& cells);

// The cell of this method, factor and length; null: there is none.
const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length);

// Whether it is a named method with a factor: not "none", "as-shipped" or a dictionary.
bool TakesFactor(const std::string& method);
std::string MethodLabel(const std::string& method, double factor);  // "yarn with factor 4"
std::string PerplexityText(double perplexity);                      // "26.7", "9.81", "1204"

}  // namespace ropewalk
