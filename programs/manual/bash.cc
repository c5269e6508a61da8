// SPDX-License-Identifier: BSD-3-Clause
#include "programs/manual/bash.h"

#include <fmt/format.h>

#include "conn/fallback_type.h"
#include "conn/transports/transports.h"
#include "conn/url/spin_option.h"
#include "programs/manual/manual.h"

namespace manual {
namespace {

// NAME is replaced by the prefix of the program's functions.
constexpr std::string_view kFunctions =
    R"(# Sets words (before the cursor's), cur (the cursor's word as the program will see it), raw (the part
# of cur that bash replaces, as typed) and quote (open at the cursor). Bash splits words at = and :.
NAME_scan() {
  local i j part c before
  words=() cur='' raw='' quote=''
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    part=${COMP_WORDS[i]}
    if ((i < 2)) || [[ ! $part =~ ^[:=]+$ && ! ${COMP_WORDS[i - 1]} =~ ^[:=]+$ ]] ||
      [[ -z $part && ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]]; then
      ((i == 0)) || words+=("$cur")
      cur=''
    fi
    raw='' quote='' before=''
    for ((j = 0; j < ${#part}; ++j)); do
      c=${part:j:1}
      if [[ $c == "$quote" ]]; then
        raw=$before$quote$raw$quote quote=''
      elif [[ -z $quote && $c == [\"\'] ]]; then
        quote=$c before=$raw raw=''
      elif [[ $c == \\ && $quote != \' ]]; then
        ((++j))
        cur+=${part:j:1} raw+=$c${part:j:1}
      else
        cur+=$c raw+=$c
      fi
    done
    [[ ! $part =~ ^[:=]+$ ]] || raw=''
  done
}
NAME_offer() {  # WORD...: offers those that begin with $cur, quoted like the command line
  local each more
  for each; do
    more=${each:${#cur}}
    [ "$each" = "$cur$more" ] || continue  # [[ may ignore case
    case $quote in
      \') more=${more//\'/\'\\\'\'} ;;
      \") more=${more//\\/\\\\} more=${more//\$/\\\$} more=${more//\`/\\\`} more=${more//\"/\\\"} ;;
      *) [[ -z $more ]] || printf -v more %q "$more" ;;
    esac
    COMPREPLY+=("$raw$more")
  done
}
NAME_files() {  # -f, or -d for folders only
  # Not compgen -f: it removes backslashes from quoted words, and only from those.
  local path=$cur each all found=()
  [[ $cur != \~/* ]] || path=${HOME-\~}/${cur#\~/}
  each=${path//\\/\\\\} each=${each//\*/\\*} each=${each//\?/\\?} each=${each//\[/\\[}
  mapfile -t all < <(compgen -G "$each*" 2>/dev/null | sort)
  for each in "${all[@]}"; do
    [[ -d $each || ($1 == -f && (-e $each || -L $each)) ]] || continue
    found+=("$cur${each:${#path}}")
    [[ ! -d $each ]] || { found[-1]+=/ && compopt -o nospace 2>/dev/null; }
  done
  ((${#found[@]} == 0)) || NAME_offer "${found[@]}"
}
NAME_options() {  # L or C, the side that uses them; SCHEME: $cur is the part after the ?
  local side=$1 given=\&${cur%"${cur##*&}"} tables='' names=() owner name whose value each entry
  for each in ${2//|/ }; do
    [[ $each != spin ]] || tables=spin
    for entry in $schemes; do [[ $entry != "$each="* ]] || tables+=" ${entry#*=}"; done
  done
  [[ $2 != *\|* ]] || tables+=' list'
  tables=" ${tables//,/ } " cur=${cur##*&}
  compopt -o nospace 2>/dev/null
  while read -r owner name whose value; do
    [[ $tables == *" $owner "* && ($whose == "$side" || $whose == B) ]] || continue
    [[ $cur != "$name="* ]] || { cur=${cur#*=} && NAME_value "$value"; return; }
    [[ $given == *"&$name="* || " ${names[*]} " == *" $name= "* ]] || names+=("$name=")
  done <<<"$table"
  NAME_offer "${names[@]}"
}
NAME_url() {  # L or C
  local scheme=${cur%%://*} each all=()
  if [[ $cur != *://* ]]; then
    cur=${cur##*|}
    for each in $schemes; do all+=("${each%%=*}://"); done
    compopt -o nospace 2>/dev/null
    NAME_offer "${all[@]}"
  elif [[ $cur == *\?* ]]; then
    cur=${cur#*\?}
    NAME_options "$1" "$scheme"
  elif [[ $scheme == *unix ]]; then
    cur=${cur#*://}
    NAME_files -f
  fi
}
NAME_value() {  # a kind of value or comma-separated words: $cur is its beginning
  local all each
  case $1 in
    -) ;;
    @file) NAME_files -f ;;
    @files) cur=${cur##*,} && NAME_files -f ;;
    @folder) NAME_files -d ;;
    @listen) NAME_url L ;;
    @connect) NAME_url C ;;
    @spin) cur=spin=$cur && NAME_options L spin ;;
    @transport:*)
      if [[ $cur == *\?* ]]; then
        each=${cur%%\?*} cur=${cur#*\?}
        NAME_options L "$each"
      else
        NAME_value "${1#*:}"
      fi
      ;;
    *) IFS=, read -ra all <<<"$1" && NAME_offer "${all[@]}" ;;
  esac
}
)";

char side_letter(conn::OptionSide side) {
  if (side == conn::OptionSide::kListener) return 'L';
  return side == conn::OptionSide::kConnecting ? 'C' : 'B';
}

void add_rows(std::string& out, std::string_view owner, const conn::OptionTable& table) {
  for (const conn::OptionGroup& group : table.groups())
    for (const conn::OptionRow& row : group.rows)
      out += fmt::format("{} {} {} {}\n", owner, row.name(), side_letter(row.side()),
                         Value::of(row).text());
}

}  // namespace

std::string bash_functions(std::string_view function) {
  constexpr std::string_view kName = "NAME";
  std::string out;
  for (std::string_view rest = kFunctions;;) {
    const std::size_t at = rest.find(kName);
    out += rest.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += function;
    rest.remove_prefix(at + kName.size());
  }
}

std::string bash_tables() {
  const conn::Registry registry = conn::all_transports();
  std::string schemes, rows;
  std::vector<const conn::OptionTable*> done;
  for (const auto& type : registry.types()) {
    const conn::OptionTable* const table = type->option_table();
    if (table == nullptr) continue;
    const std::string name(type->name());
    if (std::find(done.begin(), done.end(), table) == done.end()) {
      done.push_back(table);
      add_rows(rows, table->owner(), *table);
    }
    // tls also has the options of tcp, tls+X those of X.
    const std::string below = name == "tls"              ? ",tcp"
                              : name.starts_with("tls+") ? "," + name.substr(4)
                                                         : "";
    schemes += fmt::format("{}{}={}{}", schemes.empty() ? "" : " ", name, table->owner(), below);
  }
  add_rows(rows, "list", conn::list_options());
  add_rows(rows, "spin", conn::spin_options());
  rows.pop_back();
  return fmt::format("  local schemes='{}'\n  local table='{}'\n", schemes, rows);
}

}  // namespace manual
