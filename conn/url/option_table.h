// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of a transport in one place: what its parser accepts, and what pages say of them
// (`--write-page conn` of the programs, conn(7)). Transports make one; programs may read it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// Which side looks at an option.
enum class OptionSide : std::uint8_t {
  kBoth,        ///< every connection
  kListener,    ///< listeners alone
  kConnecting,  ///< the connecting side alone
};

/// What the value of an option names, for shells that complete it.
enum class OptionPlace : std::uint8_t {
  kNone,    ///< nothing of these
  kFile,    ///< a file
  kFiles,   ///< several, by commas
  kFolder,  ///< a folder
};

/// A word that an option takes, and what it stands for.
template <class Value>
struct OptionWord {
  std::string_view word;  ///< as in a URL
  Value value;            ///< its meaning
};
/// So that OptionWord{"no", 0} says enough.
template <class Value>
OptionWord(std::string_view, Value) -> OptionWord<Value>;

/// One option. Made by the functions that are called as its kind; the later ones say more of it.
class AECONN_API OptionRow {
 public:
  /// What a value looks like.
  enum class Kind : std::uint8_t { kFlag, kNumber, kBytes, kDuration, kWord, kText };
  /// yes or no.
  static OptionRow flag(std::string_view name, OptionSide side, bool fallback,
                        std::string_view meaning);
  /// A count from `min` to `max`.
  static OptionRow number(std::string_view name, OptionSide side, std::uint64_t fallback,
                          std::uint64_t min, std::uint64_t max, std::string_view meaning);
  /// A size in bytes from `min` to `max`.
  static OptionRow bytes(std::string_view name, OptionSide side, std::uint64_t fallback,
                         std::uint64_t min, std::uint64_t max, std::string_view meaning);
  /// A time from `min` to `max`.
  static OptionRow duration(std::string_view name, OptionSide side, ae::Duration fallback,
                            ae::Duration min, ae::Duration max, std::string_view meaning);
  /// One of `words`. The one that stands for `fallback` is the default, which pages show first;
  /// where none does, by_default() says what holds.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] static OptionRow word(std::string_view name, OptionSide side,
                                                      const std::array<OptionWord<Value>, N>& words,
                                                      Value fallback, std::string_view meaning) {
    std::vector<std::string> all;
    for (const bool first : {true, false})
      for (const OptionWord<Value>& each : words)
        if ((each.value == fallback) == first) all.emplace_back(each.word);
    return word_of(name, side, std::move(all), meaning);
  }
  /// Anything that `range` describes; the parser looks at it itself. `fallback`: what holds where
  /// it is not given, for people.
  static OptionRow text(std::string_view name, OptionSide side, std::string_view fallback,
                        std::string_view range, std::string_view meaning);

  /// These words may stand in place of the number; the first is the default.
  OptionRow or_word(std::initializer_list<std::string_view> words) &&;
  /// The same of a table that the parser reads.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] OptionRow or_word(
      const std::array<OptionWord<Value>, N>& words) && {
    for (const OptionWord<Value>& each : words) words_.emplace_back(each.word);
    return std::move(*this);
  }
  /// What the value names.
  OptionRow of(OptionPlace place) &&;
  /// What holds where it is not given, where that is no constant: "the route's".
  OptionRow by_default(std::string_view words) &&;
  /// Where the least value is that of another option: "`window`".
  OptionRow at_least(std::string_view words) &&;

  /// As in a URL.
  const std::string& name() const noexcept { return name_; }
  Kind kind() const noexcept { return kind_; }        ///< what a value looks like
  OptionSide side() const noexcept { return side_; }  ///< who looks at it
  /// The least and the greatest number, size in bytes, or time in nanoseconds that the option
  /// accepts; of the other kinds 0.
  std::uint64_t min() const noexcept { return min_; }
  std::uint64_t max() const noexcept { return max_; }  ///< see min()
  /// As it would be given, or in words; empty where there is nothing.
  std::string default_text() const;
  /// "1ms to 24h", "flag", "no, optional, yes".
  std::string range_text() const;
  /// The words that it takes, all of them or beside others; of a flag yes and no.
  std::vector<std::string> words() const;
  OptionPlace place() const noexcept { return place_; }  ///< what the value names
  /// Without a full stop. Names of options and of C are in `backquotes`.
  const std::string& meaning() const noexcept { return meaning_; }

 private:
  friend class OptionReader;
  OptionRow(Kind kind, std::string_view name, OptionSide side, std::string_view meaning)
      : kind_(kind), side_(side), name_(name), meaning_(meaning) {}
  static OptionRow word_of(std::string_view name, OptionSide side, std::vector<std::string> words,
                           std::string_view meaning);
  std::string value_text(std::uint64_t value) const;

  Kind kind_;
  OptionSide side_;
  OptionPlace place_ = OptionPlace::kNone;
  std::uint64_t fallback_ = 0, min_ = 0, max_ = 0;  // of a duration: nanoseconds
  std::string name_, meaning_, default_, least_, range_;
  std::vector<std::string> words_;
};

/// Options that belong together.
struct OptionGroup {
  std::string title;            ///< empty where there is only one
  std::vector<OptionRow> rows;  ///< in the order pages show
};

/// All options of a transport, in the order in which pages show them.
class AECONN_API OptionTable {
 public:
  /// `owner`: whose they are, for sentences.
  OptionTable(std::string_view owner, std::vector<OptionGroup> groups)
      : owner_(owner), groups_(std::move(groups)) {}

  const std::string& owner() const noexcept { return owner_; }  ///< "tcp"
  /// In the order of pages.
  const std::vector<OptionGroup>& groups() const noexcept { return groups_; }
  const OptionRow* find(std::string_view name) const noexcept;  ///< null: there is no such row
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }  ///< as find()
  /// Throws Error if a key is none of them; the sentence lists what there is.
  void only(const Options& options) const;

 private:
  std::string owner_;
  std::vector<OptionGroup> groups_;
};

/// Reads options as their table says: kind, default and range are the row's. Each throws Error for
/// a bad value, as Options does, and std::logic_error for a name or kind that the table has not.
class AECONN_API OptionReader {
 public:
  /// Borrows both.
  OptionReader(const OptionTable& table, const Options& options)
      : table_(table), options_(options) {}

  bool given(std::string_view name);  ///< whether the options have it
  bool flag(std::string_view name);   ///< yes or no
  /// A count or a size. One of the row's words is the row's own default.
  std::uint64_t number(std::string_view name);
  /// The same with bounds that other options decide.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t min);
  ae::Duration duration(std::string_view name);  ///< a time
  /// Whether it is a word of the row, or not given where a word is the default.
  bool is_word(std::string_view name);
  /// The word itself, the default where it is not given.
  std::string word(std::string_view name);
  /// What the word stands for. `words` are those that the row was made of.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] Value pick(std::string_view name,
                                           const std::array<OptionWord<Value>, N>& words) {
    const std::string chosen = one_of(name);
    for (const OptionWord<Value>& each : words)
      if (each.word == chosen) return each.value;
    throw std::logic_error("the option " + std::string(name) + " was made of other words");
  }
  /// As it was given; empty where it was not.
  std::string text(std::string_view name);

  /// Throws std::logic_error if a row was never asked for: the table has an option that nobody
  /// reads.
  void finish() const;

 private:
  const OptionRow& row(std::string_view name, std::initializer_list<OptionRow::Kind> kinds);
  std::string one_of(std::string_view name);

  const OptionTable& table_;
  const Options& options_;
  std::vector<std::string_view> read_;
};

}}  // namespace conn
