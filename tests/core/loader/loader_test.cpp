// Every way in which a plugin can fail to load has its own reason, and the process lives on.
#include "loader/loader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

namespace lazyt::loader {
namespace {

namespace fs = std::filesystem;

std::string need_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : std::string();
}

class LoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    bad_ = need_env("LAZYT_BAD_PLUGINS");
    for (const std::string& folder : folders(need_env("LAZYT_PLUGIN_PATH")))
      if (fs::exists(folder + "/lazyt_null.so")) null_ = folder + "/lazyt_null.so";
    if (bad_.empty() || null_.empty()) GTEST_SKIP() << "LAZYT_BAD_PLUGINS and LAZYT_PLUGIN_PATH do not name the build tree";
    old_path_ = need_env("LAZYT_PLUGIN_PATH");
    unsetenv("LAZYT_BACKEND");
    std::string pattern = fs::temp_directory_path() / "lazyt_loader_XXXXXX";
    temp_ = mkdtemp(pattern.data());
    setenv("XDG_DATA_HOME", temp_.c_str(), 1);  // nothing that the user installed
  }
  void TearDown() override {
    if (temp_.empty()) return;
    fs::remove_all(temp_);
    setenv("LAZYT_PLUGIN_PATH", old_path_.c_str(), 1);
    unsetenv("LAZYT_BACKEND");
  }

  static std::vector<std::string> folders(const std::string& path) {
    std::vector<std::string> out;
    std::stringstream in(path);
    for (std::string item; std::getline(in, item, ':');) out.push_back(item);
    return out;
  }
  std::string bad(const std::string& name) const { return bad_ + "/lazyt_" + name + ".so"; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(temp_ + "/" + name, std::ios::binary) << text;
    return temp_ + "/" + name;
  }
  std::string copy(const std::string& from, const std::string& name) const {
    fs::copy_file(from, temp_ + "/" + name);
    return temp_ + "/" + name;
  }
  // Only what lies in `folder` can be found.
  void search_in(const std::string& folder) const { setenv("LAZYT_PLUGIN_PATH", folder.c_str(), 1); }

  // Loading `path` fails with `reason` at `step`; the message names candidate, step, reason and cure.
  void expect_refused(const std::string& path, Reason reason, const std::string& step, const std::string& detail) {
    SCOPED_TRACE(path);
    Report report;
    auto result = load(path, &report);
    ASSERT_FALSE(result.ok());
    ASSERT_FALSE(report.candidates.empty());
    const Candidate& c = report.candidates[0];
    EXPECT_STREQ(reason_name(c.reason), reason_name(reason)) << c.detail;
    EXPECT_EQ(c.step, step) << c.detail;
    EXPECT_NE(c.detail.find(detail), std::string::npos) << c.detail;
    EXPECT_EQ(c.found_by, "argument");
    const std::string text = result.status().to_string();
    for (const std::string& part : {path, step, std::string(reason_name(reason)), std::string(reason_hint(reason))})
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
    EXPECT_STRNE(reason_hint(reason), "");
  }

  std::string bad_, null_, temp_, old_path_;
};

TEST_F(LoaderTest, LibrariesWithOneFaultAreRefusedWithItsReason) {
  struct Case {
    const char* library;
    Reason reason;
    const char* step;
    const char* detail;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"no_entry", Reason::kNoEntry, "entry", "lazyt_plugin_entry_v1"},
           {"entry_error", Reason::kEntryFailed, "entry", "the license file is missing"},
           {"entry_null", Reason::kEntryFailed, "entry", "without a table"},
           {"abi_major", Reason::kAbiMajor, "version", "built for ABI 2.0, this host has 1.0"},
           {"abi_major_symbol", Reason::kAbiMajor, "entry", "lazyt_plugin_entry_v2"},
           {"abi_draft", Reason::kAbiDraft, "version", "draft"},
           {"min_host", Reason::kHostTooOld, "version", "needs a host of ABI 1.1"},
           {"short_plugin", Reason::kStructTooShort, "version", "'plugin'"},
           {"short_table", Reason::kStructTooShort, "tables", "'buffer'"},
           {"missing_slot", Reason::kMissingSlot, "tables", "buffer.to_host"},
           {"missing_table", Reason::kMissingSlot, "tables", "'capability'"},
           {"short_enums", Reason::kHandshake, "handshake", "size of an enum is 1 in the plugin and 4 in the host"},
           {"handshake_answer", Reason::kHandshake, "handshake", "64-bit"},
           {"init_error", Reason::kInitFailed, "init", "found 1.2, need 1.3"},
           {"no_device", Reason::kNoDevice, "device", "no card in any slot"},
           {"missing_dependency", Reason::kMissingDependency, "open", "liblazyt_gone.so.7"},
           {"undefined_symbol", Reason::kUndefinedSymbol, "open", "lazyt_private_of_the_host"},
       })
    expect_refused(bad(c.library), c.reason, c.step, c.detail);
}

TEST_F(LoaderTest, AFileThatIsNoLibraryIsToldBeforeItIsOpened) {
  expect_refused(write("lazyt_text.so", "just some text, long enough for a header\n"), Reason::kNotALibrary, "file", "ELF");
  expect_refused(write("lazyt_empty.so", ""), Reason::kNotALibrary, "file", "ELF");
  expect_refused(temp_ + "/lazyt_absent.so", Reason::kFileMissing, "file", "does not exist");
  fs::create_directory(temp_ + "/lazyt_folder.so");
  expect_refused(temp_ + "/lazyt_folder.so", Reason::kNotALibrary, "file", "not a file");
}

TEST_F(LoaderTest, ALibraryOfAnotherArchitectureIsNamed) {
  const std::string path = copy(null_, "lazyt_foreign.so");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);  // e_machine
  file.write("\x16\x00", 2);  // s390
  file.close();
  expect_refused(path, Reason::kWrongArchitecture, "file", "s390");
}

TEST_F(LoaderTest, ATruncatedLibraryIsNotALibrary) {
  const std::string path = copy(null_, "lazyt_cut.so");
  fs::resize_file(path, 200);
  expect_refused(path, Reason::kNotALibrary, "open", path);
}

TEST_F(LoaderTest, AWorldWritableLibraryIsRefused) {
  const std::string path = copy(null_, "lazyt_null.so");
  chmod(path.c_str(), 0777);
  expect_refused(path, Reason::kUntrustedPath, "file", "every user");
}

TEST_F(LoaderTest, ALibraryInAWorldWritableFolderIsRefused) {
  const std::string path = copy(null_, "lazyt_null.so");
  const fs::path folder = fs::path(path).parent_path();
  chmod(folder.c_str(), 0777);
  expect_refused(path, Reason::kUntrustedPath, "file", folder.c_str());
  chmod(folder.c_str(), 01777);  // as /tmp: only owners replace files
  EXPECT_TRUE(load(path).ok());
  chmod(folder.c_str(), 0755);
}

TEST_F(LoaderTest, AManifestThatIsWrongSaysWhichField) {
  const std::string abi = R"("abi":{"major":1,"minor":0,"draft":)" + std::to_string(LAZYT_ABI_DRAFT) + "}";
  auto refused = [&](const std::string& text, Reason reason, const char* detail) {
    SCOPED_TRACE(text);
    const std::string path = write("lazyt_m.json", text);
    Report report;
    auto result = load(path, &report);
    ASSERT_FALSE(result.ok());
    EXPECT_STREQ(reason_name(report.candidates[0].reason), reason_name(reason)) << report.candidates[0].detail;
    EXPECT_EQ(report.candidates[0].step, "manifest");
    EXPECT_NE(report.candidates[0].detail.find(detail), std::string::npos) << report.candidates[0].detail;
  };
  refused("{", Reason::kBadManifest, "not valid JSON: parse error at line 1");
  refused(R"({"lazyt_manifest":1e999})", Reason::kBadManifest, "not valid JSON: number overflow");
  refused("[1]", Reason::kBadManifest, "lazyt_manifest");
  refused(R"({"name":"m"})", Reason::kBadManifest, "lazyt_manifest");
  refused(R"({"lazyt_manifest":2,"name":"m"})", Reason::kBadManifest, "format 2");
  refused(R"({"lazyt_manifest":1})", Reason::kBadManifest, "'name'");
  refused(R"({"lazyt_manifest":1,"name":"M/m"})", Reason::kBadManifest, "M/m");
  refused(R"({"lazyt_manifest":1,"name":"m"})", Reason::kBadManifest, "'library'");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so"})", Reason::kBadManifest, "'abi'");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so","score":"high",)" + abi + "}", Reason::kBadManifest, "'score'");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so","score":99999999999,)" + abi + "}", Reason::kBadManifest,
          "out of range");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so","score":18446744073709551615,)" + abi + "}", Reason::kBadManifest,
          "18446744073709551615");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x\u0000.so",)" + abi + "}", Reason::kBadManifest, "'library'");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so","abi":{"major":2,"minor":0}})", Reason::kAbiMajor, "ABI 2.0");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"x.so","abi":{"major":1,"minor":0,"draft":99}})", Reason::kAbiDraft, "99");
  refused(R"({"lazyt_manifest":1,"name":"m","library":"gone.so",)" + abi + "}", Reason::kFileMissing, "gone.so");
}

TEST_F(LoaderTest, AManifestMustNameTheBackendThatTheLibraryIs) {
  copy(null_, "lazyt_null.so");
  const std::string path = write("lazyt_other.json", R"({"lazyt_manifest":1,"name":"other","library":"lazyt_null.so",)"
                                                     R"("abi":{"major":1,"minor":0,"draft":)" +
                                                         std::to_string(LAZYT_ABI_DRAFT) + "}}");
  expect_refused(path, Reason::kBadManifest, "info", "'other'");
}

TEST_F(LoaderTest, AFolderMayHoldFilesOfOthers) {
  copy(null_, "lazyt_null.so");
  write("compile_commands.json", "[]");
  write("broken.json", "{");
  write("libother.so", "");
  search_in(temp_);
  Report report = list();
  ASSERT_FALSE(report.candidates.empty());
  EXPECT_EQ(report.candidates[0].name, "null");
  for (const Candidate& c : report.candidates)
    EXPECT_TRUE(!c.path.starts_with(temp_) || c.name == "null") << c.path;
}

TEST_F(LoaderTest, ABackendIsLoadedByNameAndByPath) {
  auto by_name = load("null");
  ASSERT_TRUE(by_name.ok()) << by_name.status().to_string();
  EXPECT_EQ(by_name.value()->info.name, "null");
  EXPECT_EQ(by_name.value()->info.path, null_);
  auto by_path = load(null_);
  ASSERT_TRUE(by_path.ok()) << by_path.status().to_string();
  EXPECT_EQ(by_name.value().get(), by_path.value().get()) << "the same library is the same plugin";
  auto by_manifest = load(fs::path(null_).replace_extension(".json").string());
  ASSERT_TRUE(by_manifest.ok()) << by_manifest.status().to_string();
  EXPECT_EQ(by_name.value().get(), by_manifest.value().get());
}

TEST_F(LoaderTest, AnUnknownNameListsWhatWasFound) {
  auto result = load("nul");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), LAZYT_CODE_NOT_FOUND);
  const std::string text = result.status().to_string();
  EXPECT_NE(text.find("there is no backend 'nul'"), std::string::npos) << text;
  EXPECT_NE(text.find("null"), std::string::npos) << text;
}

TEST_F(LoaderTest, TheEnvironmentNamesAPreferenceList) {
  setenv("LAZYT_BACKEND", (bad("init_error") + ", absent,null").c_str(), 1);
  Report report;
  auto result = load({}, &report);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result.value()->info.name, "null");
  EXPECT_EQ(report.candidates[0].reason, Reason::kInitFailed);
  EXPECT_EQ(report.candidates[0].found_by, "LAZYT_BACKEND");

  setenv("LAZYT_BACKEND", ("absent," + bad("init_error")).c_str(), 1);
  result = load();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().to_string().find("found 1.2, need 1.3"), std::string::npos) << result.status().to_string();
}

TEST_F(LoaderTest, ANamedBackendNeverFallsBack) {
  search_in(bad_ + ":" + fs::path(null_).parent_path().string());
  setenv("LAZYT_BACKEND", "init_error", 1);
  auto result = load();
  ASSERT_FALSE(result.ok());
  const std::string text = result.status().to_string();
  EXPECT_NE(text.find("backend 'init_error' (LAZYT_BACKEND) cannot be used: init-failed at step 'init'"), std::string::npos) << text;
  setenv("LAZYT_BACKEND", "no_device", 1);
  result = load();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), LAZYT_CODE_UNAVAILABLE);
  EXPECT_NE(result.status().to_string().find("no card in any slot"), std::string::npos);
}

TEST_F(LoaderTest, AutomaticChoiceSkipsPluginsWithoutDeviceAndNegativeScores) {
  copy(bad("no_device"), "lazyt_no_device.so");
  copy(null_, "lazyt_null.so");
  copy(fs::path(null_).replace_extension(".json").string(), "lazyt_null.json");
  search_in(temp_);
  Report report;
  auto result = load({}, &report);
  EXPECT_FALSE(result.ok()) << "null's score is negative";
  std::map<std::string, Reason> reasons;
  for (const Candidate& c : report.candidates)
    if (c.path.starts_with(temp_)) reasons[c.name] = c.reason;
  EXPECT_EQ(reasons["no_device"], Reason::kNoDevice);
  EXPECT_EQ(reasons["null"], Reason::kFound);
}

TEST_F(LoaderTest, TheFirstFolderWinsAName) {
  copy(null_, "lazyt_null.so");
  search_in(temp_ + ":" + fs::path(null_).parent_path().string());
  Report report;
  auto result = load("null", &report);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result.value()->info.path, temp_ + "/lazyt_null.so");
  int duplicates = 0;
  for (const Candidate& c : report.candidates) duplicates += c.reason == Reason::kDuplicateName && c.path == null_;
  EXPECT_EQ(duplicates, 1) << report.to_text();
}

TEST_F(LoaderTest, EmptyAndRelativeFoldersAreRefusedByName) {
  search_in("relative/folder::" + fs::path(null_).parent_path().string());
  Report report = list();
  ASSERT_GE(report.candidates.size(), 2u);
  EXPECT_EQ(report.candidates[0].reason, Reason::kUntrustedPath);
  EXPECT_EQ(report.candidates[0].path, "relative/folder");
  EXPECT_EQ(report.candidates[1].reason, Reason::kUntrustedPath);
  EXPECT_EQ(report.candidates[1].found_by, "LAZYT_PLUGIN_PATH");
  setenv("LAZYT_BACKEND", "./lazyt_null.so", 1);
  auto result = load({}, &report);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(report.candidates[0].reason, Reason::kUntrustedPath);
}

TEST_F(LoaderTest, AFolderThatIsNamedAndCannotBeReadIsReported) {
  search_in("/nonexistent/plugisn:" + fs::path(null_).parent_path().string());
  Report report;
  ASSERT_TRUE(load("null", &report).ok());
  EXPECT_EQ(report.candidates[0].reason, Reason::kFileMissing);
  EXPECT_EQ(report.candidates[0].path, "/nonexistent/plugisn");
  EXPECT_NE(report.candidates[0].detail.find("No such file or directory"), std::string::npos);
  for (const Candidate& c : report.candidates) EXPECT_TRUE(!c.name.empty() || c.found_by == "LAZYT_PLUGIN_PATH") << c.path;
}

TEST_F(LoaderTest, TheReportIsJson) {
  Report report;
  (void)load(bad("init_error"), &report);
  auto json = nlohmann::json::parse(report.to_json());
  EXPECT_EQ(json["lazyt_report"], 1);
  EXPECT_EQ(json["candidates"][0]["reason"], "init-failed");
  EXPECT_EQ(json["candidates"][0]["step"], "init");
  EXPECT_EQ(json["candidates"][0]["path"], bad("init_error"));
}

int open_files() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) n++;
  return n;
}

bool mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(path) != std::string::npos) return true;
  return false;
}

TEST_F(LoaderTest, AHundredRoundsOfLoadingLeaveNothingBehind) {
  const int before = open_files();
  for (int i = 0; i < 100; i++) {
    auto plugin = load("null");
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    auto device = Device::open(plugin.value(), 0);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    (void)load(bad("init_error"));
  }
  settle();  // devices are closed behind the program's back
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(mapped(null_)) << "the last reference unloads";
  EXPECT_FALSE(mapped(bad("init_error")));
}

TEST_F(LoaderTest, ThreadsThatLoadAndLetGoAtOnceGetAWorkingPlugin) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; i++) {
        auto plugin = load(null_);
        if (!plugin.ok() || !Device::open(plugin.value(), 0).ok()) failures++;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(LoaderTest, APluginThatHangsWhenItStartsIsGivenUpAndNotTriedAgain) {
  const std::string path = bad("hang");
  set_deadline(std::chrono::milliseconds(100));
  for (const char* why : {"plugin.init did not come back within 0.1 s", "did not come back in this process"}) {
    auto plugin = load(path);
    ASSERT_FALSE(plugin.ok());
    const std::string text = plugin.status().to_string();
    EXPECT_NE(text.find("hung"), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  }
  set_deadline(std::chrono::minutes(10));
  EXPECT_TRUE(mapped(path));
  EXPECT_TRUE(load(null_).ok());
}

}  // namespace
}  // namespace lazyt::loader
