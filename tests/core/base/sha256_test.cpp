#include "base/sha256.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

namespace lazyt::base {
namespace {

std::string sum(const std::string& text) { return sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); }

TEST(Sha256, GivesTheVectorsOfTheStandard) {
  EXPECT_EQ(sum(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sum("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sum(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameHoweverTheBytesAreCut) {
  std::vector<uint8_t> bytes(1000);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>(i * 31 + i / 256);
  for (size_t size : {0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000}) {
    const std::span<const uint8_t> all(bytes.data(), size);
    EXPECT_EQ(digest({all}, true), digest({all})) << size << " portably";
    for (size_t cut : {size_t{0}, size / 3, std::min<size_t>(size, 64), size})
      EXPECT_EQ(digest({all.first(cut), all.subspan(cut)}), digest({all})) << size << " at " << cut;
  }
}

TEST(Sha256, OfAFileIsThatOfItsBytes) {
  const std::string path = testing::TempDir() + "sha256";
  const std::string text(200001, 'x');
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(sha256_of_file(path).value(), sum(text));
  EXPECT_FALSE(sha256_of_file(path + ".gone").ok());
}

}  // namespace
}  // namespace lazyt::base
