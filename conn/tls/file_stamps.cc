// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/file_stamps.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::vector<std::string> files_of(const Settings& settings) {
  std::vector<std::string> files;
  for (const Settings::Identity& identity : settings.identities) {
    files.push_back(identity.cert);
    if (identity.key != identity.cert) files.push_back(identity.key);
  }
  for (const std::string* const one : {&settings.key_pass_file, &settings.ca, &settings.ca_dir,
                                       &settings.crl, &settings.dh_params})
    if (!one->empty()) files.push_back(*one);
  return files;
}

FileStamps::FileStamps(const std::vector<std::string>& files) {
  stamps_.reserve(files.size());
  for (const std::string& file : files) {
    Stamp& stamp = stamps_.emplace_back();
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) continue;
    stamp = {info.st_dev, info.st_ino, info.st_size, nanoseconds(info.st_mtim),
             nanoseconds(info.st_ctim)};
    if (special_.empty() && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) special_ = file;
  }
}

void FileStamps::refuse_special() const {
  if (!special_.empty())
    throw Error("option reload=auto: " + special_ + " is neither a file nor a folder");
}

bool FileStamps::quiet_for(ae::Duration span) const {
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  const std::int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
  return std::none_of(stamps_.begin(), stamps_.end(), [&](const Stamp& one) {
    return one.changed <= now && one.changed > now - ns;
  });
}

std::string FileStamps::text() const {
  std::string text;
  for (const Stamp& one : stamps_) {
    text.append(std::to_string(one.device)).append(" ").append(std::to_string(one.inode));
    for (const std::int64_t number : {one.size, one.written, one.changed})
      text.append(" ").append(std::to_string(number));
    text.append("\n");
  }
  return text;
}

}}}  // namespace conn::tls
