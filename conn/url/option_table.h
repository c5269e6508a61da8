// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// OptionTable: the table of a transport's options. The parser accepts the options in the table, and
// the manual pages describe them (`--write-page conn` of the programs, conn(7)). Each transport has
// one table; programs may read it.

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

/// The connections and listeners on which an option has an effect.
enum class OptionSide : std::uint8_t {
  kBoth,        ///< the option affects all connections and listeners
  kListener,    ///< the option affects listeners only, not connections
  kConnecting,  ///< the option affects only connections that this side establishes
};

/// The kind of thing that an option's value refers to, for shell completion.
enum class OptionPlace : std::uint8_t {
  kNone,    ///< the value refers to no file or folder
  kFile,    ///< the value is the path of a file
  kFiles,   ///< the value consists of the paths of several files, separated by commas
  kFolder,  ///< the value is the path of a folder
};

/// A word that an option accepts as its value, and the C++ value that the word stands for.
template <class Value>
struct OptionWord {
  std::string_view word;  ///< the word, as it is written in a URL
  Value value;            ///< the C++ value that this word stands for
};
/// Lets the compiler deduce the type Value, as in OptionWord{"no", 0}.
template <class Value>
OptionWord(std::string_view, Value) -> OptionWord<Value>;

/// One option of a transport. Make it with the static function named after its kind; the member
/// functions with && then add properties.
class AECONN_API OptionRow {
 public:
  /// The kind of value that an option takes.
  enum class Kind : std::uint8_t {
    kFlag,      ///< the option's value is yes or no
    kNumber,    ///< the option's value is a count in decimal digits
    kBytes,     ///< the option's value is a size in bytes
    kDuration,  ///< the option's value is a length of time
    kWord,      ///< the option's value is one of the row's words
    kText,      ///< the value is any text that the transport's parser accepts
  };
  /// Makes an option whose value is yes or no.
  static OptionRow flag(std::string_view name, OptionSide side, bool fallback,
                        std::string_view meaning);
  /// Makes an option whose value is a count from `min` to `max`.
  static OptionRow number(std::string_view name, OptionSide side, std::uint64_t fallback,
                          std::uint64_t min, std::uint64_t max, std::string_view meaning);
  /// Makes an option whose value is a size in bytes from `min` to `max`.
  static OptionRow bytes(std::string_view name, OptionSide side, std::uint64_t fallback,
                         std::uint64_t min, std::uint64_t max, std::string_view meaning);
  /// Makes an option whose value is a time from `min` to `max`.
  static OptionRow duration(std::string_view name, OptionSide side, ae::Duration fallback,
                            ae::Duration min, ae::Duration max, std::string_view meaning);
  /// Makes an option whose value is one of `words`. The word with the value `fallback` is the
  /// default and is shown first. If no word has that value, describe the default with by_default().
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
  /// Makes an option whose value is any text that `range` describes; the transport's parser checks
  /// the text itself. `fallback` describes in words what applies if the option is not given.
  static OptionRow text(std::string_view name, OptionSide side, std::string_view fallback,
                        std::string_view range, std::string_view meaning);

  /// Adds words that the option accepts in place of a number. The first of the words becomes the
  /// default.
  OptionRow or_word(std::initializer_list<std::string_view> words) &&;
  /// Adds the words of the array `words`, which the transport's parser also uses, like the other
  /// or_word().
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] OptionRow or_word(
      const std::array<OptionWord<Value>, N>& words) && {
    for (const OptionWord<Value>& each : words) words_.emplace_back(each.word);
    return std::move(*this);
  }
  /// Sets the kind of thing that the option's value refers to, such as a file.
  OptionRow of(OptionPlace place) &&;
  /// Sets the text shown as the option's default, for a default that is not a constant, for example
  /// "the route's".
  OptionRow by_default(std::string_view words) &&;
  /// Sets the text shown as the option's minimum, for an option whose minimum is the value of
  /// another option: at_least("`window`").
  OptionRow at_least(std::string_view words) &&;
  /// Marks the option as one that only experts need. The manual pages show such options separately.
  OptionRow tuning() &&;

  /// The name of this option, as in a URL.
  const std::string& name() const noexcept { return name_; }
  Kind kind() const noexcept { return kind_; }  ///< the kind of value that this option has
  /// The connections and listeners on which this option has an effect.
  OptionSide side() const noexcept { return side_; }
  /// The smallest value that the option accepts: a number, a size in bytes, or a time in
  /// nanoseconds; 0 for other kinds.
  std::uint64_t min() const noexcept { return min_; }
  /// The option's largest value, in the unit of min().
  std::uint64_t max() const noexcept { return max_; }
  /// Returns the option's default, as it would be written or described in words; empty if there is
  /// none.
  std::string default_text() const;
  /// Describes the values that the option accepts: "1ms to 24h", "flag", "no, optional, yes".
  std::string range_text() const;
  /// Returns the words that the option accepts: all its values, or words accepted besides numbers;
  /// yes and no for a flag.
  std::vector<std::string> words() const;
  /// The kind of thing that the option's value refers to, such as a file.
  OptionPlace place() const noexcept { return place_; }
  /// Returns whether only experts need this option.
  bool is_tuning() const noexcept { return tuning_; }
  /// The description of what this option does, without a full stop. Names of options and C names
  /// are in `backquotes`.
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
  // Default, smallest and largest value; durations are in nanoseconds.
  std::uint64_t fallback_ = 0, min_ = 0, max_ = 0;
  std::string name_, meaning_, default_, least_, range_;
  std::vector<std::string> words_;
};

/// A group of related options, with a title, in an option table.
struct OptionGroup {
  std::string title;  ///< title of the group in the manual pages; empty if it is the only group
  /// Options of the group, in the order in which the manual pages show them.
  std::vector<OptionRow> rows;
};

/// An option that a table had in an earlier version of the library. The manual pages and error
/// messages do not list it.
struct FormerOption {
  /// An old name that is still accepted for the option `now`, which is in the table. That option
  /// gets the given value, or `times` the given number.
  static FormerOption renamed(std::string_view name, std::string_view now,
                              std::uint64_t times = 1) {
    return {name, now, times, {}};
  }
  /// An option without a replacement. Giving it is an error, whose message ends with `advice`, for
  /// example "leave it out".
  static FormerOption gone(std::string_view name, std::string_view advice) {
    return {name, {}, 1, advice};
  }
  /// Returns whether no option replaces this one.
  bool is_gone() const noexcept { return now.empty(); }

  std::string_view name;    ///< name of the option in the earlier version
  std::string_view now;     ///< name of the option that replaces this one; empty: none
  std::uint64_t times;      ///< factor by which the old value is multiplied, see renamed()
  std::string_view advice;  ///< end of the error message for this option, see gone()
};

/// All options of one transport, in the order in which the manual pages show them.
class AECONN_API OptionTable {
 public:
  /// Creates a table for the transport with the name `owner`, which error messages show.
  OptionTable(std::string_view owner, std::vector<OptionGroup> groups,
              std::vector<FormerOption> former = {})
      : owner_(owner), groups_(std::move(groups)), former_(std::move(former)) {}

  /// Name of the transport that has these options: "tcp".
  const std::string& owner() const noexcept { return owner_; }
  /// The groups of options, in the order in which the manual pages show them.
  const std::vector<OptionGroup>& groups() const noexcept { return groups_; }
  /// The options that only earlier versions had. They are not in groups().
  const std::vector<FormerOption>& former() const noexcept { return former_; }
  /// Returns the option that has this name, or had it in an earlier version; null if there is none.
  const OptionRow* find(std::string_view name) const noexcept;
  /// Returns whether find() finds an option under this name.
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// Returns the error message for an option of earlier versions that has no replacement; empty for
  /// any other name.
  std::string gone(std::string_view name) const;
  /// Returns `options` with old names replaced by the current ones; no value if none of the names
  /// is old. Throws Error for an option that has no replacement, and for an option that is given
  /// under its old and its current name.
  std::optional<Options> renamed(const Options& options) const;
  /// Throws Error if `options` has a key that is not in the table; the message lists the keys that
  /// are. Accepts the names in former(), because OptionReader handles them.
  void only(const Options& options) const;

 private:
  const FormerOption* find_former(std::string_view name) const noexcept;
  bool has_former(const Options& options) const noexcept;

  std::string owner_;
  std::vector<OptionGroup> groups_;
  std::vector<FormerOption> former_;
};

/// Reads options according to their table, which defines kind, default and range. Each function
/// throws Error for a bad value, like Options, and std::logic_error for a name or kind that the
/// table does not have.
class AECONN_API OptionReader {
 public:
  /// Reads the values in `options`, whose names and limits `table` describes. Both must outlive
  /// this object. Throws Error like OptionTable::renamed().
  OptionReader(const OptionTable& table, const Options& options)
      : table_(table), renamed_(table.renamed(options)), options_(renamed_ ? *renamed_ : options) {}
  OptionReader(const OptionReader&) = delete;
  OptionReader& operator=(const OptionReader&) = delete;

  /// Returns whether the options that are read contain a value for the option `name`.
  bool given(std::string_view name);
  bool flag(std::string_view name);  ///< returns the value of a yes-or-no option, or its default
  /// Returns the value of an option that is a count or a size. If the value is one of the row's
  /// words, returns the default number of the row.
  std::uint64_t number(std::string_view name);
  /// Returns the value of an option that is a count or a size, with a default and a minimum that
  /// depend on other options.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t min);
  /// Returns the value of an option that is a time, or its default.
  ae::Duration duration(std::string_view name);
  /// Returns whether the option's value is one of the row's words. If no value is given, whether
  /// the default is a word.
  bool is_word(std::string_view name);
  /// Returns the word given as the option's value, or the option's default.
  std::string word(std::string_view name);
  /// Returns the value that the given word selects. `words` must be the array from which the row
  /// was made.
  template <class Value, std::size_t N>
  [[gnu::visibility("hidden")]] Value pick(std::string_view name,
                                           const std::array<OptionWord<Value>, N>& words) {
    const std::string chosen = one_of(name);
    for (const OptionWord<Value>& each : words)
      if (each.word == chosen) return each.value;
    throw std::logic_error("the option " + std::string(name) + " was made of other words");
  }
  /// Returns the value of a text option exactly as it is given; empty if it is not given.
  std::string text(std::string_view name);

  /// Throws std::logic_error if the value of an option in the table was never read, because that
  /// option would have no effect.
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
