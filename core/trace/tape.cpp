#include "trace/tape.h"

#include <algorithm>

#include "base/hash.h"

namespace lazyt::trace {

base::Ref<Token> Token::of(TokenHeader header, std::span<const uint64_t> signature, std::span<const uint64_t> roles, std::span<const uint64_t> metas,
                           uint64_t parts, uint64_t moved, std::shared_ptr<const ir::SourceLine> source) {
  header.signature = static_cast<uint32_t>(signature.size());
  header.roles = static_cast<uint32_t>(roles.size());
  header.metas = static_cast<uint32_t>(metas.size());
  base::Ref<Token> token = make(header, parts, moved, std::move(source));
  uint64_t* words = token->words();
  for (const auto& part : {signature, roles, metas}) words = std::copy(part.begin(), part.end(), words);
  return token;
}

void Tape::add(base::Ref<const Token> token, uint32_t first_result, bool guessed) {
  const TokenHeader& header = *token;
  const uint64_t before = base::hash128(&header, sizeof header, tokens.empty() ? 0 : tokens.back().prefix_hash).low;
  const uint64_t prefix_hash = base::hash128(token->words(), token->word_count() * 8, before).low;
  words += token->word_count();
  tokens.push_back({std::move(token), prefix_hash, first_result, guessed});
}

bool Tape::begins_as(const Tape& other, size_t count) const {
  if (count > 0 && tokens[count - 1].prefix_hash != other.tokens[count - 1].prefix_hash) return false;
  return std::equal(tokens.begin(), tokens.begin() + count, other.tokens.begin(), [](const Placed& a, const Placed& b) { return a.token->says_as(*b.token); });
}

}  // namespace lazyt::trace
