// Ids to text: every decoder in the order of the file.
#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace decode_test {

using nlohmann::json;
using testing::HasSubstr;

// A tokenizer with this decoder.
std::string With(const std::string& decoder) {
  json file = {{"added_tokens", {{{"content", "▁é a"}, {"id", 13}}}},
               {"decoder", json::parse(decoder)},
               {"model",
                {{"type", "BPE"},
                 {"vocab",
                  {{"a", 0},
                   {"▁a", 1},
                   {"▁▁", 2},
                   {"▁", 3},
                   {"<0x0A>", 4},
                   {"b", 5},
                   {"<0xC3>", 6},
                   {"<0xa9>", 7},
                   {" ", 8},
                   {"Ġa", 9},
                   {"##b", 10},
                   {"é", 11},
                   {".", 12}}},
                 {"merges", json::array()}}}};
  return file.dump();
}

// What PyPI's tokenizers 0.22 says.
TEST(Decode, StepsRunInOrder) {
#define SPACES R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})"
#define STRIP R"({"type":"Strip","content":" ","start":1,"stop":0})"
#define FUSE R"({"type":"Fuse"})"
#define BYTES R"({"type":"ByteFallback"})"
#define SEQUENCE(...) R"({"type":"Sequence","decoders":[)" __VA_ARGS__ "]}"
  const std::pair<const char*, const char*> rows[] = {
      {"null", "▁▁ ▁a a ▁ <0x0A> <0xC3> <0xa9> ▁é a b Ġa   ##b ."},
      {SEQUENCE(), "▁▁▁aa▁<0x0A><0xC3><0xa9>▁é abĠa ##b."},
      {SEQUENCE(SPACES "," BYTES "," FUSE "," STRIP), "  aa \né é abĠa ##b."},
      {SEQUENCE(SPACES "," STRIP "," FUSE), " aa<0x0A><0xC3><0xa9>é abĠa##b."},
      {SEQUENCE(FUSE R"(,{"type":"Replace","pattern":{"String":"a▁"},"content":"X"})"),
       "▁▁▁aX<0x0A><0xC3><0xa9>▁é abĠa ##b."},
      {SEQUENCE(SPACES R"(,{"type":"Replace","pattern":{"String":" a"},"content":"Y"})"),
       "  Ya <0x0A><0xC3><0xa9> éYbĠa ##b."},
      {SEQUENCE(FUSE "," BYTES), "▁▁▁aa▁<0x0A><0xC3><0xa9>▁é abĠa ##b."},
      {R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})",
       " aa <0x0A><0xC3><0xa9> é abĠa ##b."},
      {R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})",
       "   aa <0x0A><0xC3><0xa9> é abĠa ##b."},
      {R"({"type":"ByteLevel"})", "▁▁▁aa▁<0x0A><0xC3><0xa9>▁é ab a ##b."},
      {R"({"type":"WordPiece","prefix":"##","cleanup":true})",
       "▁▁ ▁a a ▁ <0x0A> <0xC3> <0xa9> ▁é a b Ġa  b."},
  };
#undef SPACES
#undef STRIP
#undef FUSE
#undef BYTES
#undef SEQUENCE
  const std::vector<int32_t> ids = {2, 1, 0, 3, 4, 6, 7, 13, 5, 9, 8, 10, 12};
  for (const auto& [decoder, text] : rows) {
    const TempFolder folder;
    folder.Write("tokenizer.json", With(decoder));
    EXPECT_EQ(LoadTokenizerFolder(folder.path())->Decode(ids), text) << decoder;
  }
}

TEST(Decode, WhatIsNotKnownIsRefused) {
  EXPECT_THAT(LoadJson(With(R"({"type":"Replace","pattern":{"Regex":"▁+"},"content":" "})")),
              HasSubstr("decoder.pattern: the key 'Regex'"));
  EXPECT_THAT(LoadJson(With(R"({"type":"Replace","pattern":{"String":""},"content":" "})")),
              HasSubstr("an empty pattern"));
  EXPECT_THAT(LoadJson(With(R"({"type":"Strip","content":" ","start":0,"stop":1})")),
              HasSubstr("stripping at the end"));
}

}  // namespace decode_test
}  // namespace ropewalk
