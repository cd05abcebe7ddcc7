#include "layers/stack.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/env.h"
#include "layers/record.h"
#include "layers/tables.h"
#include "layers/trace.h"
#include "layers/validate.h"

namespace lazyt::layers {
namespace {

using Words = std::vector<std::string>;

struct Kind {
  const char* name;
  std::vector<const char*> options;
  std::unique_ptr<Layer> (*make)(const Words& options);
};

// Every layer there is.
const std::vector<Kind>& kinds() {
  static const auto& all = *new std::vector<Kind>{
      {"validate", {"abort"}, [](const Words& options) -> std::unique_ptr<Layer> {
         return std::make_unique<Validate>(!options.empty());
       }},
      {"trace", {"json", "enter"}, [](const Words& options) -> std::unique_ptr<Layer> {
         auto has = [&](const char* word) { return std::ranges::find(options, word) != options.end(); };
         return std::make_unique<TraceLayer>(has("json"), has("enter"));
       }},
      {"record", {"data"}, [](const Words& options) -> std::unique_ptr<Layer> {
         return std::make_unique<RecordLayer>(!options.empty());
       }}};
  return all;
}

Words split(const std::string& text, char at) {
  Words out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

struct Wanted {
  const Kind* kind;
  Words options;
};

base::Result<std::vector<Wanted>> parse(const std::string& names) {
  std::vector<Wanted> out;
  if (names.empty()) return out;
  for (const std::string& item : split(names, ',')) {
    Words words = split(item, ':');
    const Kind* kind = nullptr;
    std::string known;
    for (const Kind& k : kinds()) {
      if (words[0] == k.name) kind = &k;
      known += (known.empty() ? "" : ", ") + std::string(k.name);
    }
    if (!kind)
      return base::invalid_argument(
          fmt::format("LAZYT_LAYERS='{}': there is no layer '{}'; known: {}", names, words[0], known));
    words.erase(words.begin());
    for (const std::string& word : words) {
      std::string options;
      bool fits = false;
      for (const char* o : kind->options) {
        fits |= word == o;
        options += (options.empty() ? "" : ", ") + std::string(o);
      }
      if (!fits)
        return base::invalid_argument(
            fmt::format("LAZYT_LAYERS='{}': layer '{}' has no option '{}'; it has: {}", names, kind->name,
                        word, options));
    }
    out.push_back({kind, std::move(words)});
  }
  return out;
}

}  // namespace

struct Stack::Level {
  std::unique_ptr<Layer> layer;
  std::unique_ptr<Tables> tables;
};

Stack::Stack() = default;

Stack::~Stack() {
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) level->layer->closed();
}

base::Result<std::unique_ptr<Stack>> Stack::make(const std::string& names) {
  LAZYT_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, parse(names));
  if (wanted.empty()) return std::unique_ptr<Stack>();
  std::unique_ptr<Stack> stack(new Stack);
  for (const Wanted& w : wanted) {
    std::unique_ptr<Layer> layer = w.kind->make(w.options);
    std::unique_ptr<Tables> tables = Tables::make(*layer);
    if (!tables)
      return base::Status(
          LAZYT_CODE_RESOURCE_EXHAUSTED,
          fmt::format("LAZYT_LAYERS: {} layers are in use, there is no room for another; unload a "
                      "plugin or name fewer layers",
                      Tables::kSlots));
    stack->levels_.push_back({std::move(layer), std::move(tables)});
  }
  return stack;
}

const lazyt_host_t* Stack::host_over(const lazyt_host_t* host) {
  for (Level& level : levels_) {
    level.layer->above = host;
    host = level.tables->host_over(host);
  }
  return host;
}

const lazyt_plugin_t* Stack::plugin_over(const lazyt_plugin_t* plugin) {
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    level->layer->below = plugin;
    plugin = level->tables->plugin_over(plugin);
  }
  return plugin;
}

base::Status check_environment() { return parse(base::env("LAZYT_LAYERS").value_or("")).status(); }

}  // namespace lazyt::layers
