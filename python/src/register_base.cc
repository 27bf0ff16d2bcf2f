// ropewalk/base: errors and threads.
#include <nanobind/stl/string.h>

#include "python/src/register.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"

namespace ropewalk::python {
namespace {

const char* NameOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidFile:
      return "invalid_file";
    case ErrorCode::kInvalidConfig:
      return "invalid_config";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kMismatch:
      return "mismatch";
  }
  return "internal";
}

// Error of C++ becomes ropewalk.Error with the same text and its code.
void Translate(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    const nb::handle error_type(static_cast<PyObject*>(type));
    nb::object error = error_type(e.what());
    error.attr("code") = NameOf(e.code());
    PyErr_SetObject(error_type.ptr(), error.ptr());
  }
}

}  // namespace

void RegisterBase(nb::module_& m) {
  m.attr("version") = ROPEWALK_VERSION;
  PyObject* error =
      PyErr_NewExceptionWithDoc("ropewalk.Error",
                                "What ropewalk refuses. The text names the argument, file or key, "
                                "what was expected and what was\n"
                                "given. `code` is \"invalid_argument\", \"invalid_file\", "
                                "\"invalid_config\", \"unsupported\", \"io\" or\n"
                                "\"mismatch\".",
                                PyExc_RuntimeError, nullptr);
  if (error == nullptr) throw nb::python_error();
  nb::handle(error).attr("code") = "invalid_argument";  // where Python raises it
  m.attr("Error") = nb::borrow(error);
  nb::register_exception_translator(Translate, error);  // which keeps the reference
  m.def("set_num_threads", &SetNumThreads, nb::arg("threads"),
        "Sets the largest number of threads of a call, 1 to 4096, for the whole library; PyTorch "
        "keeps "
        "its own number. Results\nare bit-identical for equal numbers.");
  m.def("num_threads", &NumThreads,
        "The number set by `set_num_threads`; before that, OpenMP's, at most `num_cores`.");
  m.def("num_cores", &NumCores, "The cores available to the process.");
}

}  // namespace ropewalk::python
