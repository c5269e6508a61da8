// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tables of a transport's options: the parser accepts what they list, and the manual pages describe
// it (`--write-page conn` of the programs, conn(7)). Each transport makes one table; programs may
// read it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// Which side uses an option.
enum class OptionSide : std::uint8_t {
  kBoth,        ///< every connection
  kListener,    ///< listeners only
  kConnecting,  ///< the connecting side only
};

/// What the value of an option names, for completion in shells.
enum class OptionPlace : std::uint8_t {
  kNone,    ///< none of these
  kFile,    ///< a file
  kFiles,   ///< several files, separated by commas
  kFolder,  ///< a folder
};

/// A word that an option accepts, and its value.
template <class Value>
struct OptionWord {
  std::string_view word;  ///< as in a URL
  Value value;            ///< what the word stands for
};
/// Deduces Value, as in OptionWord{"no", 0}.
template <class Value>
OptionWord(std::string_view, Value) -> OptionWord<Value>;

/// One option. The static function named after its kind makes it; the member functions with && add
/// properties.
class AECONN_API OptionRow {
 public:
  /// What a value looks like.
  enum class Kind : std::uint8_t {
    kFlag,      ///< yes or no
    kNumber,    ///< a count
    kBytes,     ///< a size in bytes
    kDuration,  ///< a time
    kWord,      ///< one of the row's words
    kText,      ///< anything that the parser accepts
  };
  /// A value of yes or no.
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
  /// One of `words`. The word whose value is `fallback` is the default and is shown first. If no
  /// word has that value, by_default() describes what applies.
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
  /// Any text that `range` describes; the parser checks it itself. `fallback`: what applies if the
  /// option is not given, in words.
  static OptionRow text(std::string_view name, OptionSide side, std::string_view fallback,
                        std::string_view range, std::string_view meaning);

  /// Words that are accepted in place of the number; the first is the default.
  OptionRow or_word(std::initializer_list<std::string_view> words) &&;
  /// The same, from a table that the parser reads.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] OptionRow or_word(
      const std::array<OptionWord<Value>, N>& words) && {
    for (const OptionWord<Value>& each : words) words_.emplace_back(each.word);
    return std::move(*this);
  }
  /// Sets what the value names.
  OptionRow of(OptionPlace place) &&;
  /// Describes the default if that is not a constant: "the route's".
  OptionRow by_default(std::string_view words) &&;
  /// Describes the minimum if that is the value of another option: "`window`".
  OptionRow at_least(std::string_view words) &&;
  /// Marks an option that only an expert needs: pages show these apart from the others.
  OptionRow tuning() &&;

  /// The name, as in a URL.
  const std::string& name() const noexcept { return name_; }
  Kind kind() const noexcept { return kind_; }        ///< what a value looks like
  OptionSide side() const noexcept { return side_; }  ///< which side uses it
  /// The minimum and maximum that the option accepts: a number, a size in bytes, or a time in
  /// nanoseconds. 0 for other kinds.
  std::uint64_t min() const noexcept { return min_; }
  std::uint64_t max() const noexcept { return max_; }  ///< see min()
  /// The default as it would be given, or in words; empty if there is none.
  std::string default_text() const;
  /// The accepted values: "1ms to 24h", "flag", "no, optional, yes".
  std::string range_text() const;
  /// The accepted words, which may be all values or additions to other values; yes and no for a
  /// flag.
  std::vector<std::string> words() const;
  OptionPlace place() const noexcept { return place_; }  ///< what the value names
  bool is_tuning() const noexcept { return tuning_; }    ///< only an expert needs it
  /// The description, without a full stop. Names of options and C names are in `backquotes`.
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
  bool tuning_ = false;
  std::uint64_t fallback_ = 0, min_ = 0, max_ = 0;  // in nanoseconds for a duration
  std::string name_, meaning_, default_, least_, range_;
  std::vector<std::string> words_;
};

/// A group of related options.
struct OptionGroup {
  std::string title;            ///< empty if there is only one group
  std::vector<OptionRow> rows;  ///< in the order of the pages
};

/// An option that a table had in an earlier version. Pages and messages do not list it.
struct FormerOption {
  /// An old name that stays accepted. The value of `now`, an option of the table, is the given
  /// value, or `times` the given number.
  static FormerOption renamed(std::string_view name, std::string_view now,
                              std::uint64_t times = 1) {
    return {name, now, times, {}};
  }
  /// An option without a replacement is an error, which ends with `advice`: "leave it out".
  static FormerOption gone(std::string_view name, std::string_view advice) {
    return {name, {}, 1, advice};
  }
  bool is_gone() const noexcept { return now.empty(); }  ///< there is no replacement

  std::string_view name;    ///< as it was in a URL
  std::string_view now;     ///< the option that replaced it; empty if there is none
  std::uint64_t times;      ///< see renamed()
  std::string_view advice;  ///< see gone()
};

/// All options of a transport, in the order in which pages show them.
class AECONN_API OptionTable {
 public:
  /// `owner`: the name of the transport, for messages.
  OptionTable(std::string_view owner, std::vector<OptionGroup> groups,
              std::vector<FormerOption> former = {})
      : owner_(owner), groups_(std::move(groups)), former_(std::move(former)) {}

  const std::string& owner() const noexcept { return owner_; }  ///< "tcp"
  /// In the order of the pages.
  const std::vector<OptionGroup>& groups() const noexcept { return groups_; }
  /// Options of earlier versions, which are not in groups().
  const std::vector<FormerOption>& former() const noexcept { return former_; }
  /// Null if there is no such row. For the old name of an option, the row of that option.
  const OptionRow* find(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }  ///< as find()
  /// The error message for an option that is gone; empty for any other name.
  std::string gone(std::string_view name) const;
  /// `options` with the current names of options; empty if no name is an old one. Throws Error for
  /// an option that is gone, and for one that is given by both of its names.
  std::optional<Options> renamed(const Options& options) const;
  /// Throws Error if a key is not in the table; the message lists the keys that are. Accepts the
  /// names in former(): OptionReader decides on these.
  void only(const Options& options) const;

 private:
  const FormerOption* find_former(std::string_view name) const noexcept;
  bool has_former(const Options& options) const noexcept;

  std::string owner_;
  std::vector<OptionGroup> groups_;
  std::vector<FormerOption> former_;
};

/// Reads options according to their table, which defines kind, default and range. Each function
/// throws Error for a bad value, as Options does, and std::logic_error for a name or kind that the
/// table does not have.
class AECONN_API OptionReader {
 public:
  /// Both must outlive this object. Throws Error as OptionTable::renamed() does.
  OptionReader(const OptionTable& table, const Options& options)
      : table_(table), renamed_(table.renamed(options)), options_(renamed_ ? *renamed_ : options) {}
  OptionReader(const OptionReader&) = delete;
  OptionReader& operator=(const OptionReader&) = delete;

  bool given(std::string_view name);  ///< whether the option was given
  bool flag(std::string_view name);   ///< yes or no
  /// A count or a size. If the value is one of the row's words, this is the row's default.
  std::uint64_t number(std::string_view name);
  /// The same, with bounds that depend on other options.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t min);
  ae::Duration duration(std::string_view name);  ///< a time
  /// Whether the value is a word of the row, or is not given and the default is a word.
  bool is_word(std::string_view name);
  /// The word itself; the default if none was given.
  std::string word(std::string_view name);
  /// The value of the word. `words`: those that the row was made from.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] Value pick(std::string_view name,
                                           const std::array<OptionWord<Value>, N>& words) {
    const std::string chosen = one_of(name);
    for (const OptionWord<Value>& each : words)
      if (each.word == chosen) return each.value;
    throw std::logic_error("the option " + std::string(name) + " was made of other words");
  }
  /// The value as given; empty if it was not given.
  std::string text(std::string_view name);

  /// Throws std::logic_error if a row was never read: an option in the table would have no effect.
  void finish() const;

 private:
  const OptionRow& row(std::string_view name, std::initializer_list<OptionRow::Kind> kinds);
  std::string one_of(std::string_view name);

  const OptionTable& table_;
  const std::optional<Options> renamed_;
  const Options& options_;
  std::vector<std::string_view> read_;
};

}}  // namespace conn
