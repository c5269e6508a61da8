// SPDX-License-Identifier: BSD-3-Clause
#include "conn/url/option_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace conn { inline namespace AECONN_ABI {
namespace {

std::uint64_t count_of(ae::Duration time) { return static_cast<std::uint64_t>(time.count()); }
ae::Duration time_of(std::uint64_t count) {
  return ae::Duration(static_cast<ae::Duration::rep>(count));
}

/// Returns the words as one text, separated by commas and spaces: "a, b, c".
template <class Words>
std::string listed(const Words& words) {
  std::string all;
  for (const auto& word : words) all.append(all.empty() ? "" : ", ").append(word);
  return all;
}

}  // namespace

OptionRow OptionRow::flag(std::string_view name, OptionSide side, bool fallback,
                          std::string_view meaning) {
  OptionRow row(Kind::kFlag, name, side, meaning);
  row.fallback_ = fallback ? 1 : 0;
  return row;
}

OptionRow OptionRow::number(std::string_view name, OptionSide side, std::uint64_t fallback,
                            std::uint64_t min, std::uint64_t max, std::string_view meaning) {
  OptionRow row(Kind::kNumber, name, side, meaning);
  row.fallback_ = fallback;
  row.min_ = min;
  row.max_ = max;
  return row;
}

OptionRow OptionRow::bytes(std::string_view name, OptionSide side, std::uint64_t fallback,
                           std::uint64_t min, std::uint64_t max, std::string_view meaning) {
  OptionRow row = number(name, side, fallback, min, max, meaning);
  row.kind_ = Kind::kBytes;
  return row;
}

OptionRow OptionRow::duration(std::string_view name, OptionSide side, ae::Duration fallback,
                              ae::Duration min, ae::Duration max, std::string_view meaning) {
  OptionRow row = number(name, side, count_of(fallback), count_of(min), count_of(max), meaning);
  row.kind_ = Kind::kDuration;
  return row;
}

OptionRow OptionRow::word_of(std::string_view name, OptionSide side, std::vector<std::string> words,
                             std::string_view meaning) {
  OptionRow row(Kind::kWord, name, side, meaning);
  row.words_ = std::move(words);
  return row;
}

OptionRow OptionRow::text(std::string_view name, OptionSide side, std::string_view fallback,
                          std::string_view range, std::string_view meaning) {
  OptionRow row(Kind::kText, name, side, meaning);
  row.default_ = fallback;
  row.range_ = range;
  return row;
}

OptionRow OptionRow::or_word(std::initializer_list<std::string_view> words) && {
  words_.assign(words.begin(), words.end());
  return std::move(*this);
}
OptionRow OptionRow::of(OptionPlace place) && {
  place_ = place;
  return std::move(*this);
}
OptionRow OptionRow::by_default(std::string_view words) && {
  default_ = words;
  return std::move(*this);
}
OptionRow OptionRow::at_least(std::string_view words) && {
  least_ = words;
  return std::move(*this);
}

OptionRow OptionRow::tuning() && {
  tuning_ = true;
  return std::move(*this);
}

std::string OptionRow::value_text(std::uint64_t value) const {
  if (kind_ == Kind::kBytes) return size_words(value);
  if (kind_ == Kind::kDuration) return time_words(time_of(value));
  return std::to_string(value);
}

std::string OptionRow::default_text() const {
  if (!default_.empty() || kind_ == Kind::kText) return default_;
  if (!words_.empty()) return words_.front();
  if (kind_ == Kind::kFlag) return fallback_ != 0 ? "yes" : "no";
  return value_text(fallback_);
}

std::string OptionRow::range_text() const {
  if (kind_ == Kind::kText) return range_;
  if (kind_ == Kind::kFlag) return "flag";
  if (kind_ == Kind::kWord) return listed(words_);
  std::string words = listed(words_);
  if (!words.empty()) words += ", ";
  return words + (least_.empty() ? value_text(min_) : least_) + " to " + value_text(max_);
}

std::vector<std::string> OptionRow::words() const {
  if (kind_ == Kind::kFlag) return {"yes", "no"};
  return words_;
}

const OptionRow* OptionTable::find(std::string_view name) const noexcept {
  for (const OptionGroup& group : groups_)
    for (const OptionRow& row : group.rows)
      if (row.name() == name) return &row;
  const FormerOption* const former = find_former(name);
  return former != nullptr && !former->is_gone() ? find(former->now) : nullptr;
}

const FormerOption* OptionTable::find_former(std::string_view name) const noexcept {
  for (const FormerOption& each : former_)
    if (each.name == name) return &each;
  return nullptr;
}

bool OptionTable::has_former(const Options& options) const noexcept {
  return std::any_of(former_.begin(), former_.end(),
                     [&options](const FormerOption& each) { return options.has(each.name); });
}

std::string OptionTable::gone(std::string_view name) const {
  const FormerOption* const former = find_former(name);
  if (former == nullptr || !former->is_gone()) return {};
  return owner_ + " has no option " + std::string(name) +
         " any more: " + std::string(former->advice);
}

std::optional<Options> OptionTable::renamed(const Options& options) const {
  if (!has_former(options)) return std::nullopt;
  Options current;
  for (const auto& [key, value] : options.values()) {
    const FormerOption* const former = find_former(key);
    if (former == nullptr) {
      current.set(key, value);
      continue;
    }
    if (former->is_gone()) throw Error(gone(key));
    if (options.has(former->now))
      throw Error(key + " is the old name of " + std::string(former->now) + ": give one of them");
    const OptionRow* const row = find(former->now);
    current.set(row->name(), former->times == 1
                                 ? value
                                 : std::to_string(former->times *
                                                  options.number(key, 0, row->min() / former->times,
                                                                 row->max() / former->times)));
  }
  return current;
}

void OptionTable::only(const Options& options) const {
  std::vector<std::string_view> known;
  for (const OptionGroup& group : groups_)
    for (const OptionRow& row : group.rows) known.push_back(row.name());
  if (!has_former(options)) return options.only(owner_, known);
  Options current;
  for (const auto& [key, value] : options.values())
    if (find_former(key) == nullptr) current.set(key, value);
  current.only(owner_, known);
}

const OptionRow& OptionReader::row(std::string_view name,
                                   std::initializer_list<OptionRow::Kind> kinds) {
  for (const OptionGroup& group : table_.groups()) {
    for (const OptionRow& row : group.rows) {
      if (row.name() != name) continue;
      if (std::find(kinds.begin(), kinds.end(), row.kind_) == kinds.end()) break;
      read_.push_back(row.name());
      return row;
    }
  }
  throw std::logic_error("no option of " + table_.owner() +
                         " is of this kind: " + std::string(name));
}

bool OptionReader::given(std::string_view name) { return options_.has(name); }

bool OptionReader::flag(std::string_view name) {
  return options_.flag(name, row(name, {OptionRow::Kind::kFlag}).fallback_ != 0);
}

std::uint64_t OptionReader::number(std::string_view name) {
  const OptionRow& r = row(name, {OptionRow::Kind::kNumber, OptionRow::Kind::kBytes});
  return is_word(name) ? r.fallback_ : number(name, r.fallback_, r.min_);
}

std::uint64_t OptionReader::number(std::string_view name, std::uint64_t fallback,
                                   std::uint64_t min) {
  const OptionRow& r = row(name, {OptionRow::Kind::kNumber, OptionRow::Kind::kBytes});
  return r.kind_ == OptionRow::Kind::kBytes ? options_.bytes(name, fallback, min, r.max_)
                                            : options_.number(name, fallback, min, r.max_);
}

ae::Duration OptionReader::duration(std::string_view name) {
  const OptionRow& r = row(name, {OptionRow::Kind::kDuration});
  if (is_word(name)) return time_of(r.fallback_);
  return options_.duration(name, time_of(r.fallback_), time_of(r.min_), time_of(r.max_));
}

bool OptionReader::is_word(std::string_view name) {
  const OptionRow& r = row(name, {OptionRow::Kind::kNumber, OptionRow::Kind::kBytes,
                                  OptionRow::Kind::kDuration, OptionRow::Kind::kWord});
  if (r.words_.empty()) return false;
  return !options_.has(name) ||
         std::find(r.words_.begin(), r.words_.end(), options_.text(name, "")) != r.words_.end();
}

std::string OptionReader::word(std::string_view name) {
  const OptionRow& r = row(name, {OptionRow::Kind::kNumber, OptionRow::Kind::kBytes,
                                  OptionRow::Kind::kDuration, OptionRow::Kind::kWord});
  return options_.text(name, r.words_.empty() ? "" : r.words_.front());
}

std::string OptionReader::one_of(std::string_view name) {
  const OptionRow& r = row(name, {OptionRow::Kind::kWord});
  std::string given = word(name);
  if (std::find(r.words_.begin(), r.words_.end(), given) == r.words_.end())
    throw Error("option " + r.name() + "=" + given + ": must be one of " + listed(r.words_));
  return given;
}

std::string OptionReader::text(std::string_view name) {
  (void)row(name, {OptionRow::Kind::kText, OptionRow::Kind::kWord});
  return options_.text(name, "");
}

void OptionReader::finish() const {
  for (const OptionGroup& group : table_.groups())
    for (const OptionRow& row : group.rows)
      if (std::find(read_.begin(), read_.end(), row.name()) == read_.end())
        throw std::logic_error("nobody reads the option " + row.name() + " of " + table_.owner());
}

}}  // namespace conn
