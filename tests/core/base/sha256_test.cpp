#include "base/sha256.h"

#include <fstream>

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

TEST(Sha256, OfAFileIsThatOfItsBytes) {
  const std::string path = testing::TempDir() + "sha256";
  const std::string text(200001, 'x');
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(sha256_of_file(path).value(), sum(text));
  EXPECT_FALSE(sha256_of_file(path + ".gone").ok());
}

}  // namespace
}  // namespace lazyt::base
