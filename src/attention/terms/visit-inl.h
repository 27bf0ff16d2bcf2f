// The term of a form. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_VISIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_VISIT_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_VISIT_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_VISIT_INL_H_
#endif

#include <variant>

#include "src/attention/terms/term_content-inl.h"
#include "src/attention/terms/term_contextual-inl.h"
#include "src/attention/terms/term_gate-inl.h"
#include "src/attention/terms/term_pair-inl.h"
#include "src/attention/terms/term_slope-inl.h"
#include "src/attention/terms/term_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

template <class T>
struct TermType {
  using type = T;
};

// work(TermType<Term>()) for the term of `form`, which may be null: once per tile of queries, so
// that nothing is decided within.
template <class F>
auto VisitTerm(const FormRun* form, const F& work) {
  if (form == nullptr) return work(TermType<NoTerm>());
  const ScoreForm& f = *form->form;
  if (std::holds_alternative<SlopeForm>(f)) return work(TermType<SlopeTerm>());
  if (std::holds_alternative<DistanceForm>(f)) return work(TermType<TableTerm>());
  if (std::holds_alternative<PairForm>(f)) return work(TermType<PairTerm>());
  if (std::holds_alternative<ContentForm>(f)) return work(TermType<ContentTerm>());
  if (std::get<RunningForm>(f).kind == RunningForm::Kind::kGates) {
    return work(TermType<GateTerm>());
  }
  return work(TermType<ContextualTerm>());
}

int64_t FormScratchFloatsT(const FormRun& form, int64_t rows, int64_t group, int64_t head_dim) {
  return VisitTerm(&form, [&]<class Term>(TermType<Term>) {
    return Term::ScratchFloats(form, rows, group, head_dim);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
