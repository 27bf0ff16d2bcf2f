// ropewalk/io and ropewalk/tokenizer: models in files, and tokenizers, of which Python may bring its own.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arrays.h"
#include "python/src/eval.h"
#include "python/src/register.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/model/model.h"
#include "ropewalk/tokenizer/utf8_text.h"

namespace ropewalk::python {
namespace {

// A tokenizer in Python: `given` has encode(text) -> ids, decode(ids) -> bytes, piece(id) -> str and
// the attributes vocab_size, kind, hash, bos_id (or None) and adds_bos.
class PythonTokenizer final : public Tokenizer {
 public:
  explicit PythonTokenizer(nb::object given) : given_(std::move(given)) {
    kind_ = nb::cast<std::string>(given_.attr("kind"));
    hash_ = nb::cast<std::string>(given_.attr("hash"));
    bos_id_ = nb::cast<std::optional<int32_t>>(given_.attr("bos_id"));
    adds_bos_ = nb::cast<bool>(given_.attr("adds_bos"));
    vocab_size_ = nb::cast<int64_t>(given_.attr("vocab_size"));
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    const nb::gil_scoped_acquire gil;
    const std::string valid = ValidUtf8(text);
    const nb::object ids = given_.attr("encode")(nb::str(valid.data(), valid.size()));
    return VectorOf(AsArray<int32_t>(ids, "int32"));
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    const nb::gil_scoped_acquire gil;
    nb::list list;
    for (const int32_t id : ids) list.append(id);
    const auto bytes = nb::cast<nb::bytes>(given_.attr("decode")(list));
    return {bytes.c_str(), bytes.size()};
  }
  std::string Piece(int32_t id) const override {
    const nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(given_.attr("piece")(id));
  }
  int64_t vocab_size() const override { return vocab_size_; }

 private:
  nb::object given_;
  int64_t vocab_size_ = 0;
};

ModelFiles Open(const std::string& path, bool allow_unknown, bool weights) {
  const nb::gil_scoped_release no_gil;
  return OpenModel(path, {.allow_unknown = allow_unknown, .need_weights = weights});
}

std::unique_ptr<Decoder> Load(const ModelFiles& files, const std::string& compute,
                              const std::string& weights) {
  if (!files.config.not_runnable.empty()) {
    throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
  }
  const ComputeType type =
      compute == Name(ComputeType::kBFloat16) ? ComputeType::kBFloat16 : ComputeType::kFloat32;
  WeightStorage form = WeightStorage::kAuto;
  for (const auto named : {WeightStorage::kPacked, WeightStorage::kUnpacked}) {
    if (weights == Name(named)) form = named;
  }
  const nb::gil_scoped_release no_gil;
  return Decoder::Load(files, {.compute = type, .weights = form});
}

}  // namespace

void RegisterModels(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def("encode",
           [](const Tokenizer& t, const std::string& text) { return ArrayOf(t.Encode(text)); })
      .def_prop_ro("kind", &Tokenizer::kind)
      .def_prop_ro("hash", &Tokenizer::hash)
      .def_prop_ro("bos_id", &Tokenizer::bos_id)
      .def_prop_ro("adds_bos", &Tokenizer::adds_bos);
  nb::class_<PythonTokenizer, Tokenizer>(m, "PythonTokenizer")
      .def(nb::init<nb::object>(), nb::arg("given"));
  nb::class_<ModelFiles>(m, "ModelFiles")
      .def(nb::new_(&Open), nb::arg("path"), nb::arg("allow_unknown") = false,
           nb::arg("weights") = true)
      .def_ro("path", &ModelFiles::path)
      .def_prop_ro(
          "tokenizer", [](const ModelFiles& f) { return f.tokenizer.get(); },
          nb::rv_policy::reference_internal)
      .def_ro("tokenizer_error", &ModelFiles::tokenizer_error)
      .def_prop_ro("warnings", [](const ModelFiles& f) { return f.config.not_honoured; })
      .def_prop_ro("plan",
                   [](const ModelFiles& f) {
                     const PositionPlan& own = f.config.plan;
                     PyPlan plan(own, std::max<int64_t>(1, own.configured_length),
                                 f.config.not_honoured);
                     plan.family = f.config.architecture;
                     return PlanObject(plan);
                   })
      .def("hash", &ModelFiles::Hash, nb::call_guard<nb::gil_scoped_release>())
      .def("decoder", &Load, nb::arg("compute") = "float32", nb::arg("weights") = "auto");
  nb::class_<Hasher>(m, "Hasher")
      .def(nb::init<>())
      .def("update",
           [](Hasher& h, const nb::bytes& bytes) { h.Update(bytes.c_str(), bytes.size()); })
      .def("update",
           [](Hasher& h,
              const nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
             h.Update(bytes.data(), bytes.size());
           })
      .def("hex", &Hasher::Hex);
}

}  // namespace ropewalk::python
