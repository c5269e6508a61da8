// SPDX-License-Identifier: BSD-3-Clause
#include "programs/manual/conn_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>
#include <vector>

#include "conn/fallback_type.h"
#include "conn/transports/transports.h"
#include "programs/manual/manual.h"
#include "programs/manual/roff.h"

namespace manual {
namespace {

/// An option table and the schemes that use it.
struct Chapter {
  std::vector<std::string> schemes;
  const conn::OptionTable* table;
};

std::vector<Chapter> chapters(const conn::Registry& registry) {
  std::vector<Chapter> all;
  for (const auto& type : registry.types()) {
    const conn::OptionTable* table = type->option_table();
    if (table == nullptr) continue;
    Chapter* known = nullptr;
    for (Chapter& each : all)
      if (each.table == table) known = &each;
    if (known == nullptr) known = &all.emplace_back(Chapter{{}, table});
    known->schemes.emplace_back(type->name());
  }
  return all;
}

/// Text in backquotes becomes bold.
std::string marked(std::string_view text) {
  std::string out;
  for (bool inside = false;; inside = !inside) {
    const std::size_t end = text.find('`');
    const std::string_view part = text.substr(0, end);
    out += inside ? bold(part) : plain(part);
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

std::string_view side_words(conn::OptionSide side) {
  if (side == conn::OptionSide::kListener) return " (listeners)";
  return side == conn::OptionSide::kConnecting ? " (connecting)" : "";
}

void describe(std::string& out, const conn::OptionRow& row) {
  out += ".TP\n" + bold(row.name()) + plain(side_words(row.side())) + "\n";
  out += marked(row.meaning()) + ".\n.br\n";
  if (!row.default_text().empty()) out += "Default: " + marked(row.default_text()) + ". ";
  out += "Values: " + (row.range_text() == "flag" ? "yes, no" : marked(row.range_text())) + ".\n";
}

/// The groups of a table, then its tuning options under a title of their own.
void describe(std::string& out, const conn::OptionTable& table) {
  std::string tuning;
  for (const conn::OptionGroup& group : table.groups()) {
    std::string rows;
    for (const conn::OptionRow& row : group.rows) describe(row.is_tuning() ? tuning : rows, row);
    if (!group.title.empty() && !rows.empty()) out += ".SS " + plain(group.title) + "\n";
    out += rows;
  }
  if (!tuning.empty()) out += ".SS Tuning\n" + tuning;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

constexpr std::string_view kBegin = R"(.SH NAME
conn \- options of connections over tcp, unix, vsock, shm, rdma and tls
.SH SYNOPSIS
.IB scheme :// place
.RB [ ? \c
.IR option = value [\c
.BR & \c
.IR option = value ]...]
.SH DESCRIPTION
A URL selects the transport of a connection and its options.
Options follow the question mark, joined by ampersands.
A program may set other defaults for a transport; options of a URL take precedence.
Accepted connections have the options of the listener.
An option that the transport does not know is an error that lists the known ones.
.PP
Some options apply only to listeners, some only to the connecting side, as marked.
All others apply to both.
Options under the title Tuning are for experts; their defaults suit most programs.
.TP
.B size
65536, 64k, 1m, 1g, 1t: powers of 1024
.TP
.B time
3s, 250ms, 20us, 2m, 1h; a plain number counts seconds
.TP
.B count
plain digits
.TP
.B yes or no
also on, off, true, false, 1, 0; the option alone means yes
)";

constexpr std::string_view kEnd = R"(.SH EXAMPLES
.PP
Windows of 256 KiB, and a keepalive every second:
.PP
.nf
.RS
rdma://10.0.0.1:6379?window=256k&keepalive=1s
.RE
.fi
.PP
TLS over RDMA, each with an option of its own:
.PP
.nf
.RS
tls+rdma://10.0.0.1:6379?ca=/etc/kv/ca.pem&window=256k
.RE
.fi
.SH SEE ALSO
.BR aeconn\-doctor (1),
.BR aeconn\-proxy (1),
.BR conn\-perf (1),
.BR kv\-cli (1),
.BR kv\-server (1),
.BR rdma_cm (7),
.BR tcp (7),
.BR unix (7)
)";

}  // namespace

std::string conn_page(const std::string& version) {
  const conn::Registry registry = conn::all_transports();
  std::string out = fmt::format(".TH CONN 7 \"\" \"aeconn {}\" \"Miscellaneous\"\n", version);
  out += kBegin;
  for (const Chapter& each : chapters(registry)) {
    out += ".SH " + upper(each.table->owner()) + "\n";
    if (each.schemes.size() > 1)
      out += plain(fmt::format("For {}. The layer below has its own options in addition to these.",
                               fmt::join(each.schemes, ", "))) +
             "\n";
    describe(out, *each.table);
  }
  out += ".SH LISTS OF SCHEMES\n";
  out += plain(
             "A URL with several schemes, such as rdma|tcp://host:port, has the options of all of "
             "them "
             "and these.") +
         "\n";
  describe(out, conn::list_options());
  out += kEnd;
  return out;
}

std::string option_lines() {
  const conn::Registry registry = conn::all_transports();
  std::vector<Chapter> all = chapters(registry);
  all.push_back({{"Lists of schemes"}, &conn::list_options()});
  std::string out;
  for (const Chapter& each : all)
    for (const conn::OptionGroup& group : each.table->groups())
      for (const conn::OptionRow& row : group.rows) {
        const std::string_view side = row.side() == conn::OptionSide::kListener     ? "L"
                                      : row.side() == conn::OptionSide::kConnecting ? "C"
                                                                                    : "";
        out += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", each.schemes.front(), row.name(),
                           side, row.default_text(), row.range_text(), row.meaning(),
                           row.is_tuning() ? "tuning" : "", Value::of(row).text());
      }
  return out;
}

}  // namespace manual
