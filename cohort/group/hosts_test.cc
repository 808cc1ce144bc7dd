#include "cohort/group/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cohort/base/error.h"

namespace cohort::group {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "accepted";
}

std::string refused_file(std::string_view text) {
  return refusal([&] { parse_host_file(text, "hosts.txt"); });
}
std::string refused_nodes(std::string_view text) {
  return refusal([&] { parse_nodelist(text); });
}

TEST(Hosts, TheCommandLineNamesHostsAndSlots) {
  EXPECT_EQ(parse_host_list("h1:2,h2:4"), (Hosts{{"h1", 2}, {"h2", 4}}));
  EXPECT_EQ(parse_host_list("h1, h2", 3), (Hosts{{"h1", 3}, {"h2", 3}}));
  EXPECT_EQ(parse_host_list("me@node-1.x:2,[fe80::1%eth0]:3,[::1]"), (Hosts{{"me@node-1.x", 2}, {"fe80::1%eth0", 3}, {"::1", 1}}));
  EXPECT_EQ(parse_host_list("h1:2,h2,h1"), (Hosts{{"h1", 3}, {"h2", 1}}));
}

TEST(Hosts, NothingThatAShellOrSshCouldTakeForAnOptionIsAHost) {
  for (const char* word : {"-oProxyCommand=x", "a b", "$(x)", "a;b", "", "a,,b", "u@-x", "@h", "h@", "a@b@c", "h/1"})
    EXPECT_THAT(refusal([&] { parse_host_list(word); }),
                testing::AnyOf(HasSubstr("is not a host name"), HasSubstr("list of hosts is empty")))
        << word;
  EXPECT_THAT(refusal([] { parse_host_list("h:0"); }), HasSubstr("'0' is not a number of slots from 1 to 4096"));
  EXPECT_THAT(refusal([] { parse_host_list("h:x"); }), HasSubstr("'x' is not a number"));
  EXPECT_THAT(refusal([] { parse_host_list("fe80::1"); }), HasSubstr("in brackets"));
}

TEST(Hosts, FilesOfOpenMpiMpichAndHorovodAreRead) {
  const char* text = "# our cluster\n  h1 slots=2   max_slots=4\n\nh2:3 # spare\r\nh3\n";
  EXPECT_EQ(parse_host_file(text, "f"), (Hosts{{"h1", 2}, {"h2", 3}, {"h3", 1}}));
  EXPECT_EQ(parse_discovery("h1:2\nh2", "s", 4), (Hosts{{"h1", 2}, {"h2", 4}}));
}

TEST(Hosts, AnErrorNamesItsLine) {
  EXPECT_THAT(refused_file("h1\nh2 slot=2\n"), HasSubstr("hosts.txt, line 2: 'slot=2' is not understood"));
  EXPECT_THAT(refused_file("\n#\nh2 slots=many"), HasSubstr("hosts.txt, line 3: 'many' is not a number of slots"));
  EXPECT_THAT(refused_file("# none\n"), HasSubstr("hosts.txt names no host"));
  EXPECT_THAT(refusal([] { parse_discovery("", "./find"); }), HasSubstr("./find printed no host"));
}

TEST(Hosts, SlurmsListsExpandInOrder) {
  EXPECT_THAT(parse_nodelist("n1"), ElementsAre("n1"));
  EXPECT_THAT(parse_nodelist("gnode[10,20-22],x"), ElementsAre("gnode10", "gnode20", "gnode21", "gnode22", "x"));
  EXPECT_THAT(parse_nodelist("n[008-010]"), ElementsAre("n008", "n009", "n010"));
  EXPECT_THAT(parse_nodelist("r[0-1]n[1,3].c"), ElementsAre("r0n1.c", "r0n3.c", "r1n1.c", "r1n3.c"));
  EXPECT_THAT(parse_tasks_per_node("2(x3),1"), ElementsAre(2, 2, 2, 1));
}

TEST(Hosts, BrokenListsAreRefusedBeforeTheyGrow) {
  for (const char* text : {"", "n[", "n]", "n[1", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[[1]]", "n[a]", ",n", "n,", "n 1", "-n"})
    EXPECT_NE(refused_nodes(text), "accepted") << text;
  EXPECT_THAT(refused_nodes("n[0-999999999]"), HasSubstr("more than 4096 nodes"));
  EXPECT_THAT(refused_nodes("n[0-99]x[0-99]y[0-99]"), HasSubstr("more than 4096 nodes"));
  for (const char* text : {"", "x", "0", "2(x0)", "2(x", "2(x3", "2(x3)4", "1(x5000)", "99999"})
    EXPECT_NE(refusal([&] { parse_tasks_per_node(text); }), "accepted") << text;
}

TEST(Hosts, RanksFillSlotsInOrder) {
  const Hosts hosts{{"a", 2}, {"b", 3}, {"c", 1}};
  EXPECT_THAT(share_ranks(hosts, 0), ElementsAre(HostShare{"a", 0, 2}, HostShare{"b", 2, 3}, HostShare{"c", 5, 1}));
  EXPECT_THAT(share_ranks(hosts, 3), ElementsAre(HostShare{"a", 0, 2}, HostShare{"b", 2, 1}));
  EXPECT_THAT(refusal([&] { share_ranks(hosts, 7); }), HasSubstr("-n 7, but 3 hosts have 6 slots"));
}

}  // namespace
}  // namespace cohort::group
