// Internal: a folder of files that stands for a machine.
#ifndef SLUICE_TEST_SUPPORT_FILE_TREE_H_
#define SLUICE_TEST_SUPPORT_FILE_TREE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace sluice::test {

// A new folder, removed with everything in it by the destructor.
class FileTree {
 public:
  FileTree() {
    std::string name = testing::TempDir() + "sluice_tree_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    root_ = name;
  }
  ~FileTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FileTree(const FileTree&) = delete;
  FileTree& operator=(const FileTree&) = delete;

  std::string root() const { return root_.string(); }
  // Below the root, also where `path` begins with a slash.
  std::filesystem::path At(const std::string& path) const {
    return root_ / std::filesystem::path(path).relative_path();
  }

  // With the folders above it.
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(At(path).parent_path());
    std::ofstream(At(path)) << text;
  }
  // A link in its place, to something that is no plain file.
  void Link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories(At(path).parent_path());
    std::filesystem::remove(At(path));
    std::filesystem::create_symlink(target, At(path));
  }
  void Remove(const std::string& path) {
    EXPECT_GT(std::filesystem::remove_all(At(path)), 0u) << path;
  }
  bool Has(const std::string& path) const {
    return std::filesystem::exists(At(path));
  }
  // Without the end of the line.
  std::string Read(const std::string& path) const {
    std::string text = ReadAll(At(path));
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  // Every plain file below `path` and what is in it.
  std::map<std::string, std::string> Everything(const std::string& path) const {
    std::map<std::string, std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(At(path))) {
      if (entry.is_symlink() || !entry.is_regular_file()) continue;
      files[entry.path().string()] = ReadAll(entry.path());
    }
    return files;
  }

 private:
  static std::string ReadAll(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path root_;
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_FILE_TREE_H_
