// What redis-server 7.0.15 replied to one sequence of commands, recorded from a run of it, and that
// the kv-server replies the same, byte for byte. "@300" stands for 300 times "x"; an
// empty reply is not compared (HELLO tells the client's id).

#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/session.h"
#include "tests/support/catch.h"

namespace {

using namespace std::string_view_literals;

struct Exchange {
  std::string_view command, reply;
};

const Exchange kExchanges[] = {
    {"PING"sv, "+PONG\r\n"sv},
    {"PING a"sv, "$1\r\na\r\n"sv},
    {"PING a b"sv, "-ERR wrong number of arguments for 'ping' command\r\n"sv},
    {"ECHO"sv, "-ERR wrong number of arguments for 'echo' command\r\n"sv},
    {"ECHO a"sv, "$1\r\na\r\n"sv},
    {"ECHO a b"sv, "-ERR wrong number of arguments for 'echo' command\r\n"sv},
    {"SELECT"sv, "-ERR wrong number of arguments for 'select' command\r\n"sv},
    {"SELECT 1"sv, "+OK\r\n"sv},
    {"SELECT 0"sv, "+OK\r\n"sv},
    {"SELECT 16"sv, "-ERR DB index is out of range\r\n"sv},
    {"SELECT -1"sv, "-ERR DB index is out of range\r\n"sv},
    {"SELECT a"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SELECT 99999999999"sv,
     "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n"sv},
    {"SELECT 99999999999999999999"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET"sv, "-ERR wrong number of arguments for 'set' command\r\n"sv},
    {"SET a"sv, "-ERR wrong number of arguments for 'set' command\r\n"sv},
    {"SET a b"sv, "+OK\r\n"sv},
    {"GET a"sv, "$1\r\nb\r\n"sv},
    {"GET"sv, "-ERR wrong number of arguments for 'get' command\r\n"sv},
    {"GET a b"sv, "-ERR wrong number of arguments for 'get' command\r\n"sv},
    {"SET a b c"sv, "-ERR syntax error\r\n"sv},
    {"SET a b EX"sv, "-ERR syntax error\r\n"sv},
    {"SET a b EX 0"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b EX -1"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b EX a"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET a b EX 9223372036854775807"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b PX 9223372036854775807"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b PXAT 9223372036854775807"sv, "+OK\r\n"sv},
    {"SET a b EXAT 9223372036854775807"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b NX XX"sv, "-ERR syntax error\r\n"sv},
    {"SET a b XX NX"sv, "-ERR syntax error\r\n"sv},
    {"SET a b NX GET"sv, "$1\r\nb\r\n"sv},
    {"SET n b NX GET"sv, "$-1\r\n"sv},
    {"GET n"sv, "$1\r\nb\r\n"sv},
    {"SET n2 b XX GET"sv, "$-1\r\n"sv},
    {"GET n2"sv, "$-1\r\n"sv},
    {"SET a b KEEPTTL EX 10"sv, "-ERR syntax error\r\n"sv},
    {"SET a b EX 10 KEEPTTL"sv, "-ERR syntax error\r\n"sv},
    {"SET a b EX 10 PX 10"sv, "-ERR syntax error\r\n"sv},
    {"SET a b EX 10 EX 20"sv, "+OK\r\n"sv},
    {"TTL a"sv, ":20\r\n"sv},
    {"SET a c KEEPTTL"sv, "+OK\r\n"sv},
    {"TTL a"sv, ":20\r\n"sv},
    {"SET a d"sv, "+OK\r\n"sv},
    {"TTL a"sv, ":-1\r\n"sv},
    {"SET a b EXAT 1"sv, "+OK\r\n"sv},
    {"GET a"sv, "$-1\r\n"sv},
    {"SET a b PERSIST"sv, "-ERR syntax error\r\n"sv},
    {"SET a b GET"sv, "$-1\r\n"sv},
    {"SET a c GET"sv, "$1\r\nb\r\n"sv},
    {"SET a b PX 100000"sv, "+OK\r\n"sv},
    {"TTL a"sv, ":100\r\n"sv},
    {"SET q q XX"sv, "$-1\r\n"sv},
    {"SET q q NX"sv, "+OK\r\n"sv},
    {"SET q q NX"sv, "$-1\r\n"sv},
    {"set q Q ex 100"sv, "+OK\r\n"sv},
    {"ttl q"sv, ":100\r\n"sv},
    {"SET a b NX EX 0"sv, "-ERR invalid expire time in 'set' command\r\n"sv},
    {"SET a b XX XX"sv, "+OK\r\n"sv},
    {"SET a b NX NX"sv, "$-1\r\n"sv},
    {"GETSET a"sv, "-ERR wrong number of arguments for 'getset' command\r\n"sv},
    {"GETSET a new"sv, "$1\r\nb\r\n"sv},
    {"GETSET nope new"sv, "$-1\r\n"sv},
    {"GETDEL"sv, "-ERR wrong number of arguments for 'getdel' command\r\n"sv},
    {"GETDEL a"sv, "$3\r\nnew\r\n"sv},
    {"GETDEL a"sv, "$-1\r\n"sv},
    {"GETEX"sv, "-ERR wrong number of arguments for 'getex' command\r\n"sv},
    {"GETEX a"sv, "$-1\r\n"sv},
    {"GETEX q"sv, "$1\r\nQ\r\n"sv},
    {"GETEX q PERSIST"sv, "$1\r\nQ\r\n"sv},
    {"TTL q"sv, ":-1\r\n"sv},
    {"GETEX q EX 10"sv, "$1\r\nQ\r\n"sv},
    {"TTL q"sv, ":10\r\n"sv},
    {"GETEX q EX 0"sv, "-ERR invalid expire time in 'getex' command\r\n"sv},
    {"GETEX q EX a"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"GETEX nokey EX 0"sv, "$-1\r\n"sv},
    {"GETEX nokey EX"sv, "-ERR syntax error\r\n"sv},
    {"GETEX q PERSIST EX 10"sv, "-ERR syntax error\r\n"sv},
    {"GETEX q EX 10 PERSIST"sv, "-ERR syntax error\r\n"sv},
    {"GETEX q KEEPTTL"sv, "-ERR syntax error\r\n"sv},
    {"GETEX q NX"sv, "-ERR syntax error\r\n"sv},
    {"GETEX q EXAT 1"sv, "$1\r\nQ\r\n"sv},
    {"GET q"sv, "$-1\r\n"sv},
    {"SETNX a 1"sv, ":1\r\n"sv},
    {"SETNX a 2"sv, ":0\r\n"sv},
    {"SETEX a"sv, "-ERR wrong number of arguments for 'setex' command\r\n"sv},
    {"SETEX a 10 v"sv, "+OK\r\n"sv},
    {"SETEX a 0 v"sv, "-ERR invalid expire time in 'setex' command\r\n"sv},
    {"SETEX a -1 v"sv, "-ERR invalid expire time in 'setex' command\r\n"sv},
    {"SETEX a x v"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SETEX a 9223372036854775807 v"sv, "-ERR invalid expire time in 'setex' command\r\n"sv},
    {"PSETEX a 0 v"sv, "-ERR invalid expire time in 'psetex' command\r\n"sv},
    {"PSETEX a 10000 v"sv, "+OK\r\n"sv},
    {"PSETEX a 9223372036854775807 v"sv, "-ERR invalid expire time in 'psetex' command\r\n"sv},
    {"TTL a"sv, ":10\r\n"sv},
    {"MSET"sv, "-ERR wrong number of arguments for 'mset' command\r\n"sv},
    {"MSET a"sv, "-ERR wrong number of arguments for 'mset' command\r\n"sv},
    {"MSET a b"sv, "+OK\r\n"sv},
    {"MSET a b c"sv, "-ERR wrong number of arguments for 'mset' command\r\n"sv},
    {"MSET a 1 b 2"sv, "+OK\r\n"sv},
    {"MSETNX a 1 zz 2"sv, ":0\r\n"sv},
    {"MSETNX x1 1 x2 2"sv, ":1\r\n"sv},
    {"MSETNX a b c"sv, "-ERR wrong number of arguments for 'msetnx' command\r\n"sv},
    {"MGET"sv, "-ERR wrong number of arguments for 'mget' command\r\n"sv},
    {"MGET a b nope x1"sv, "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$3\r\nnew\r\n$1\r\n1\r\n"sv},
    {"APPEND a"sv, "-ERR wrong number of arguments for 'append' command\r\n"sv},
    {"APPEND a xyz"sv, ":4\r\n"sv},
    {"APPEND newk xyz"sv, ":3\r\n"sv},
    {"STRLEN a"sv, ":4\r\n"sv},
    {"STRLEN none"sv, ":0\r\n"sv},
    {"STRLEN"sv, "-ERR wrong number of arguments for 'strlen' command\r\n"sv},
    {"SETRANGE a"sv, "-ERR wrong number of arguments for 'setrange' command\r\n"sv},
    {"SETRANGE a 1 ZZ"sv, ":4\r\n"sv},
    {"GET a"sv, "$4\r\n1ZZz\r\n"sv},
    {"SETRANGE a -1 Z"sv, "-ERR offset is out of range\r\n"sv},
    {"SETRANGE a x Z"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SETRANGE nk 0 \"\""sv, ":0\r\n"sv},
    {"EXISTS nk"sv, ":0\r\n"sv},
    {"SETRANGE nk 3 abc"sv, ":6\r\n"sv},
    {"GET nk"sv, "$6\r\n\000\000\000abc\r\n"sv},
    {"SETRANGE nk 536870911 ab"sv,
     "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"sv},
    {"SETRANGE nk 9223372036854775807 ab"sv,
     "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"sv},
    {"SETRANGE a 1 \"\""sv, ":4\r\n"sv},
    {"GETRANGE a 0 -1"sv, "$4\r\n1ZZz\r\n"sv},
    {"GETRANGE a"sv, "-ERR wrong number of arguments for 'getrange' command\r\n"sv},
    {"GETRANGE a 1 2"sv, "$2\r\nZZ\r\n"sv},
    {"GETRANGE a -3 -2"sv, "$2\r\nZZ\r\n"sv},
    {"GETRANGE a -1 -3"sv, "$0\r\n\r\n"sv},
    {"GETRANGE a 5 1"sv, "$0\r\n\r\n"sv},
    {"GETRANGE a 0 1000"sv, "$4\r\n1ZZz\r\n"sv},
    {"GETRANGE a -1000 1"sv, "$2\r\n1Z\r\n"sv},
    {"GETRANGE a -1000 -900"sv, "$1\r\n1\r\n"sv},
    {"GETRANGE a x 1"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"GETRANGE a 1 x"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"GETRANGE none 0 -1"sv, "$0\r\n\r\n"sv},
    {"SUBSTR a 0 1"sv, "$2\r\n1Z\r\n"sv},
    {"SUBSTR a"sv, "-ERR wrong number of arguments for 'substr' command\r\n"sv},
    {"GETRANGE a 0 9223372036854775807"sv, "$4\r\n1ZZz\r\n"sv},
    {"GETRANGE a -9223372036854775808 9223372036854775807"sv, "$4\r\n1ZZz\r\n"sv},
    {"SET n 10"sv, "+OK\r\n"sv},
    {"INCR n"sv, ":11\r\n"sv},
    {"DECR n"sv, ":10\r\n"sv},
    {"INCRBY n 5"sv, ":15\r\n"sv},
    {"DECRBY n 3"sv, ":12\r\n"sv},
    {"INCRBY n x"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"INCRBY n"sv, "-ERR wrong number of arguments for 'incrby' command\r\n"sv},
    {"INCRBY n 1.5"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"INCRBY n 9223372036854775807"sv, "-ERR increment or decrement would overflow\r\n"sv},
    {"SET n 9223372036854775807"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR increment or decrement would overflow\r\n"sv},
    {"DECR n"sv, ":9223372036854775806\r\n"sv},
    {"SET n -9223372036854775808"sv, "+OK\r\n"sv},
    {"DECR n"sv, "-ERR increment or decrement would overflow\r\n"sv},
    {"DECRBY n 1"sv, "-ERR increment or decrement would overflow\r\n"sv},
    {"DECRBY n -9223372036854775808"sv, "-ERR decrement would overflow\r\n"sv},
    {"INCRBY n -1"sv, "-ERR increment or decrement would overflow\r\n"sv},
    {"SET n abc"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"INCRBYFLOAT n 1"sv, "-ERR value is not a valid float\r\n"sv},
    {"SET n 007"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n +5"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n \" 5\""sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n -0"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n 18446744073709551616"sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n \"\""sv, "+OK\r\n"sv},
    {"INCR n"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SET n 10.5"sv, "+OK\r\n"sv},
    {"INCRBYFLOAT n 0.1"sv, "$4\r\n10.6\r\n"sv},
    {"INCRBYFLOAT n -5"sv, "$3\r\n5.6\r\n"sv},
    {"INCRBYFLOAT n 5.0e3"sv, "$22\r\n5005.60000000000000009\r\n"sv},
    {"INCRBYFLOAT n abc"sv, "-ERR value is not a valid float\r\n"sv},
    {"INCRBYFLOAT n nan"sv, "-ERR value is not a valid float\r\n"sv},
    {"INCRBYFLOAT n inf"sv, "-ERR increment would produce NaN or Infinity\r\n"sv},
    {"INCRBYFLOAT n -inf"sv, "-ERR increment would produce NaN or Infinity\r\n"sv},
    {"INCRBYFLOAT n 1e4932"sv,
     "$4933\r\n1000000000000000000006018949387963891323837774254533114773785041352533019486608"
     "7224075333277794331427736665255636662776820618609064404603366234161649310975421086536237"
     "3994723782427360775564628207733774677062828108346124470945764363340927284485142091466676"
     "5408339856497738306756454137037618440476182982865954054046320908299555942321302503320602"
     "0800702082036239210791518814602037450147749316204900303949987193126146540640813734932488"
     "7712089245518638375343919787097804150279771688019395540310772191163864625693948419729312"
     "8160329482360996995779489224859264034146949087194820794222433687849284561987230134006305"
     "4145536263236148644795650793900527619806334636401289796966153625455076083039605538308661"
     "4559264437228910291860269674176774129715399835926313589798584969763867831058680372002464"
     "7593066044070323761747439375151949994191528876172274034561238465689530914002496208547488"
     "4522492198210492176903592465943261885372008460254769368567077269864258043040536883175723"
     "8029269088045467785221045879073317742109896534638384553301619296565337753342109755377320"
     "2105452559589360227732550843545717469715211293029277100649951579279463212875228768700827"
     "2746299513315849942032437084121909483156147986417210541583973513957477585483287542705342"
     "2572136164035622781608009489243336690241745424238262923227754402660964025532555781432158"
     "0325340352330660617642326696140257239552549121071985189443846777623334881929189773707008"
     "4034665952048387336216332733836319448569894841384449783866560587553108488336897918964849"
     "9884755036426410480080057824551176259469116154573089131974410795389799310100821760126931"
     "0629890308357893793344340072837782716410520818640099771094401772024731084835860689936533"
     "0357268541753961953517680965193109446314459236380532145759933784687752928658714357422497"
     "7797982277501432447584589961509638007989909953845312104385182134917837173664070264530428"
     "4254885437611441690360616466368202194307769462209963387690446576691969551571041941288302"
     "6489128273451942862711222303478232460734982851537085795000626562227149541133292939533464"
     "9561594778409117588355498811716738765068152578136186445036499260507912977060479329107655"
     "9668041153558254765774288831330658676910296506538343982699076824147706077401185501337053"
     "6768754408631136301720679022238378385258021814060039426065076098263200151938076330355866"
     "6153915042560594069176863784581543418458525591507408131725031957270037057987797717764434"
     "5205933505850374212779064837146242765034714569464306865784829936445754893825213995710137"
     "5677503425567623291379733879130473005548417375068001549841986869239652861470792732035610"
     "0464736528604987679078828830113005043720748906779884207844336016777224583410362930104134"
     "5252122743437501935254370757049878526838283810705343010153283985958550741661374001212323"
     "1725622300372905976750292788654895702688036180015202807485884818586323321454221815245009"
     "7053373885865288162573815895584046933483010636624326221042921025817397818652220830681420"
     "7038831590332622155464159216193005478809313772661406449321989529908990407599717265354887"
     "0810276224121657647931062463099109847578696279827008850552599009735671284984377826714926"
     "1035108885827146338749583302181931854870555860639584607039050032320463633938365552812365"
     "7438115225035433947543876805317781492691295772410403746456774175666884503175504415270824"
     "2587503056537884738826710383404812781886480136474501904314697372770080030412046938591535"
     "4405805910838451654126152112708811640234967915131722739518362849092216133642975738669840"
     "1928682323657056924758648793848799822907606679071280964393541325129231682456669123450140"
     "8791201379315486525376015086562091834869283845158429737601636017562306978267792372750784"
     "7182425866438213375987615153753259842952199975843101808700181748530091947958317104996778"
     "1322202936864648780744025361452947117776701129210049872555316467204668470989130203733391"
     "3495017087131812440689211995873148239745682341747924291397990885877946665287699866028203"
     "7596804544520921987559667887791210333694989414237817364869213085417789802019462967031110"
     "1994938157038765957014792056173739623614871557317714453597336202068774935086409386414223"
     "3751417656017582684187641146510530882810092482461101950843644689268375729928701104114148"
     "7877061639781733452936740323806169963208929354311818529988128046348180069620196672351192"
     "2556078483839325067415562633057448408746541808590342228476964416681055875561781810005936"
     "3281918448159156587196835228459799010183350500062463920276571495803323197396603767071804"
     "2916628065825843477336276456327713422052577986989383282486642290992848493937496407138624"
     "8088592408142723646533801882861736205992781965360090000802821408763787641023437653119263"
     "7572802127736946552135070757176225211602271871576316355836821300893646825430072920420099"
     "7615013518941592341324410000642108281739498830026573442267754810074182968284266833447231"
     "4928702968616204691717366798642916146473018363370523427203416579250811577900985980957404"
     "8300194036003618605209859379735069565577397547417833547285893508763793711631410865384181"
     "13791886622720\r\n"sv},
    {"SET n 5.0e3"sv, "+OK\r\n"sv},
    {"INCRBYFLOAT n 2.0e2"sv, "$4\r\n5200\r\n"sv},
    {"INCRBYFLOAT fresh 3.0"sv, "$1\r\n3\r\n"sv},
    {"INCRBYFLOAT fresh 0.0000000001"sv, "$12\r\n3.0000000001\r\n"sv},
    {"INCRBYFLOAT n 1e17"sv, "$18\r\n100000000000005200\r\n"sv},
    {"INCRBYFLOAT n -3e17"sv, "$19\r\n-199999999999994800\r\n"sv},
    {"INCRBYFLOAT n \" 5\""sv, "-ERR value is not a valid float\r\n"sv},
    {"INCRBYFLOAT n"sv, "-ERR wrong number of arguments for 'incrbyfloat' command\r\n"sv},
    {"SET n 3 EX 100"sv, "+OK\r\n"sv},
    {"INCR n"sv, ":4\r\n"sv},
    {"TTL n"sv, ":100\r\n"sv},
    {"INCRBYFLOAT n 1e400"sv,
     "$401\r\n10000000000000000000281880683947586514586453433629052038625910693539685534008629"
     "8620393639948483241605220940539273176162002958227772592557340238289765933406610177974474"
     "3454617391786244811667497172377894382439159333804747067502624668440135923751360383034373"
     "5485505244955964979021825038280091068414947402456898653040951017512658092615827588920183"
     "472511643316591362664138176309734806343732497430221946880\r\n"sv},
    {"INCRBYFLOAT n 0x10"sv,
     "$401\r\n10000000000000000000281880683947586514586453433629052038625910693539685534008629"
     "8620393639948483241605220940539273176162002958227772592557340238289765933406610177974474"
     "3454617391786244811667497172377894382439159333804747067502624668440135923751360383034373"
     "5485505244955964979021825038280091068414947402456898653040951017512658092615827588920183"
     "472511643316591362664138176309734806343732497430221946880\r\n"sv},
    {"INCR newcounter"sv, ":1\r\n"sv},
    {"DECRBY newcounter 5"sv, ":-4\r\n"sv},
    {"DEL"sv, "-ERR wrong number of arguments for 'del' command\r\n"sv},
    {"DEL a b none"sv, ":2\r\n"sv},
    {"UNLINK"sv, "-ERR wrong number of arguments for 'unlink' command\r\n"sv},
    {"UNLINK x1 x2 x2"sv, ":2\r\n"sv},
    {"EXISTS"sv, "-ERR wrong number of arguments for 'exists' command\r\n"sv},
    {"EXISTS n n n none"sv, ":3\r\n"sv},
    {"TYPE"sv, "-ERR wrong number of arguments for 'type' command\r\n"sv},
    {"TYPE n"sv, "+string\r\n"sv},
    {"TYPE none"sv, "+none\r\n"sv},
    {"EXPIRE"sv, "-ERR wrong number of arguments for 'expire' command\r\n"sv},
    {"EXPIRE n"sv, "-ERR wrong number of arguments for 'expire' command\r\n"sv},
    {"EXPIRE n 100"sv, ":1\r\n"sv},
    {"EXPIRE n x"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"EXPIRE none 10"sv, ":0\r\n"sv},
    {"EXPIRE n 9223372036854775807"sv, "-ERR invalid expire time in 'expire' command\r\n"sv},
    {"EXPIRE n -9223372036854775808"sv, "-ERR invalid expire time in 'expire' command\r\n"sv},
    {"PEXPIRE n 9223372036854775807"sv, "-ERR invalid expire time in 'pexpire' command\r\n"sv},
    {"PEXPIRE n -9223372036854775808"sv, ":1\r\n"sv},
    {"EXISTS n"sv, ":0\r\n"sv},
    {"SET n 1"sv, "+OK\r\n"sv},
    {"EXPIREAT n 9223372036854775807"sv, "-ERR invalid expire time in 'expireat' command\r\n"sv},
    {"PEXPIREAT n 9223372036854775807"sv, ":1\r\n"sv},
    {"SET n 1"sv, "+OK\r\n"sv},
    {"EXPIRE n 100 NX"sv, ":1\r\n"sv},
    {"EXPIRE n 100 NX"sv, ":0\r\n"sv},
    {"EXPIRE n 200 XX"sv, ":1\r\n"sv},
    {"EXPIRE n 50 GT"sv, ":0\r\n"sv},
    {"EXPIRE n 300 GT"sv, ":1\r\n"sv},
    {"EXPIRE n 400 LT"sv, ":0\r\n"sv},
    {"EXPIRE n 40 LT"sv, ":1\r\n"sv},
    {"TTL n"sv, ":40\r\n"sv},
    {"PERSIST n"sv, ":1\r\n"sv},
    {"PERSIST n"sv, ":0\r\n"sv},
    {"PERSIST none"sv, ":0\r\n"sv},
    {"EXPIRE n 10 GT"sv, ":0\r\n"sv},
    {"EXPIRE n 10 LT"sv, ":1\r\n"sv},
    {"EXPIRE n 10 XX"sv, ":1\r\n"sv},
    {"EXPIRE n 10 NX XX"sv,
     "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"sv},
    {"EXPIRE n 10 NX GT"sv,
     "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"sv},
    {"EXPIRE n 10 GT LT"sv, "-ERR GT and LT options at the same time are not compatible\r\n"sv},
    {"EXPIRE n 10 FOO"sv, "-ERR Unsupported option FOO\r\n"sv},
    {"EXPIRE n 10 XX GT"sv, ":0\r\n"sv},
    {"EXPIRE n 20 XX GT"sv, ":1\r\n"sv},
    {"EXPIRE n 20 XX XX"sv, ":1\r\n"sv},
    {"EXPIRE n x NX XX"sv,
     "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"sv},
    {"EXPIRE n x FOO"sv, "-ERR Unsupported option FOO\r\n"sv},
    {"TTL"sv, "-ERR wrong number of arguments for 'ttl' command\r\n"sv},
    {"TTL none"sv, ":-2\r\n"sv},
    {"PTTL none"sv, ":-2\r\n"sv},
    {"EXPIREAT n 33177117420"sv, ":1\r\n"sv},
    {"EXPIRETIME n"sv, ":33177117420\r\n"sv},
    {"PEXPIRETIME n"sv, ":33177117420000\r\n"sv},
    {"PEXPIREAT n 33177117420123"sv, ":1\r\n"sv},
    {"PEXPIRETIME n"sv, ":33177117420123\r\n"sv},
    {"EXPIRETIME n"sv, ":33177117420\r\n"sv},
    {"EXPIRETIME none"sv, ":-2\r\n"sv},
    {"PERSIST n"sv, ":1\r\n"sv},
    {"EXPIRETIME n"sv, ":-1\r\n"sv},
    {"PTTL n"sv, ":-1\r\n"sv},
    {"EXPIRE n -1"sv, ":1\r\n"sv},
    {"EXISTS n"sv, ":0\r\n"sv},
    {"SET n 1"sv, "+OK\r\n"sv},
    {"EXPIREAT n 1"sv, ":1\r\n"sv},
    {"EXISTS n"sv, ":0\r\n"sv},
    {"SET n 1"sv, "+OK\r\n"sv},
    {"PEXPIREAT n 0"sv, ":1\r\n"sv},
    {"EXISTS n"sv, ":0\r\n"sv},
    {"FLUSHALL"sv, "+OK\r\n"sv},
    {"FLUSHALL FOO"sv, "-ERR syntax error\r\n"sv},
    {"FLUSHALL ASYNC"sv, "+OK\r\n"sv},
    {"FLUSHALL SYNC"sv, "+OK\r\n"sv},
    {"FLUSHALL SYNC ASYNC"sv, "-ERR syntax error\r\n"sv},
    {"FLUSHDB"sv, "+OK\r\n"sv},
    {"FLUSHDB async"sv, "+OK\r\n"sv},
    {"FLUSHDB x"sv, "-ERR syntax error\r\n"sv},
    {"DBSIZE"sv, ":0\r\n"sv},
    {"DBSIZE x"sv, "-ERR wrong number of arguments for 'dbsize' command\r\n"sv},
    {"RANDOMKEY"sv, "$-1\r\n"sv},
    {"RANDOMKEY x"sv, "-ERR wrong number of arguments for 'randomkey' command\r\n"sv},
    {"KEYS"sv, "-ERR wrong number of arguments for 'keys' command\r\n"sv},
    {"KEYS *"sv, "*0\r\n"sv},
    {"SET hello 1"sv, "+OK\r\n"sv},
    {"KEYS *"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS h?llo"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS h[a-e]llo"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS h[^e]llo"sv, "*0\r\n"sv},
    {"KEYS h[^a]llo"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS h*o"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS [h"sv, "*0\r\n"sv},
    {"KEYS \"\\x5chello\""sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS hell[o-a]"sv, "*1\r\n$5\r\nhello\r\n"sv},
    {"KEYS H*"sv, "*0\r\n"sv},
    {"KEYS x*"sv, "*0\r\n"sv},
    {"RANDOMKEY"sv, "$5\r\nhello\r\n"sv},
    {"SCAN"sv, "-ERR wrong number of arguments for 'scan' command\r\n"sv},
    {"SCAN 0"sv, "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nhello\r\n"sv},
    {"SCAN a"sv, "-ERR invalid cursor\r\n"sv},
    {"SCAN 0 COUNT"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 0 COUNT 0"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 0 COUNT -1"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 0 COUNT x"sv, "-ERR value is not an integer or out of range\r\n"sv},
    {"SCAN 0 MATCH h*"sv, "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nhello\r\n"sv},
    {"SCAN 0 MATCH x*"sv, "*2\r\n$1\r\n0\r\n*0\r\n"sv},
    {"SCAN 0 TYPE string"sv, "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nhello\r\n"sv},
    {"SCAN 0 TYPE list"sv, "*2\r\n$1\r\n0\r\n*0\r\n"sv},
    {"SCAN 0 TYPE foo"sv, "*2\r\n$1\r\n0\r\n*0\r\n"sv},
    {"SCAN 0 FOO"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 0 FOO BAR"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 0 COUNT 10 MATCH"sv, "-ERR syntax error\r\n"sv},
    {"SCAN 99999999999999999999999"sv, "-ERR invalid cursor\r\n"sv},
    {"SCAN 0x"sv, "-ERR invalid cursor\r\n"sv},
    {"SCAN 0 COUNT 1000 MATCH * TYPE STRING"sv, "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nhello\r\n"sv},
    {"RENAME"sv, "-ERR wrong number of arguments for 'rename' command\r\n"sv},
    {"RENAME a"sv, "-ERR wrong number of arguments for 'rename' command\r\n"sv},
    {"RENAME none x"sv, "-ERR no such key\r\n"sv},
    {"RENAME none none"sv, "-ERR no such key\r\n"sv},
    {"RENAME hello hello"sv, "+OK\r\n"sv},
    {"RENAME hello bye"sv, "+OK\r\n"sv},
    {"GET bye"sv, "$1\r\n1\r\n"sv},
    {"SET hello 2 EX 100"sv, "+OK\r\n"sv},
    {"RENAME hello bye"sv, "+OK\r\n"sv},
    {"GET bye"sv, "$1\r\n2\r\n"sv},
    {"TTL bye"sv, ":100\r\n"sv},
    {"RENAMENX none x"sv, "-ERR no such key\r\n"sv},
    {"RENAMENX bye bye"sv, ":0\r\n"sv},
    {"RENAMENX bye new"sv, ":1\r\n"sv},
    {"SET o 1"sv, "+OK\r\n"sv},
    {"RENAMENX new o"sv, ":0\r\n"sv},
    {"RENAMENX o p"sv, ":1\r\n"sv},
    {"DBSIZE"sv, ":2\r\n"sv},
    {"SET x y"sv, "+OK\r\n"sv},
    {"SELECT 3"sv, "+OK\r\n"sv},
    {"GET x"sv, "$-1\r\n"sv},
    {"SET x z"sv, "+OK\r\n"sv},
    {"DBSIZE"sv, ":1\r\n"sv},
    {"SELECT 0"sv, "+OK\r\n"sv},
    {"GET x"sv, "$1\r\ny\r\n"sv},
    {"FLUSHDB"sv, "+OK\r\n"sv},
    {"SELECT 3"sv, "+OK\r\n"sv},
    {"DBSIZE"sv, ":1\r\n"sv},
    {"FLUSHALL"sv, "+OK\r\n"sv},
    {"SELECT 0"sv, "+OK\r\n"sv},
    {"AUTH"sv, "-ERR wrong number of arguments for 'auth' command\r\n"sv},
    {"AUTH a"sv,
     "-ERR AUTH <password> called without any password configured for the default user. Are yo"
     "u sure your configuration is correct?\r\n"sv},
    {"AUTH default a"sv, "+OK\r\n"sv},
    {"AUTH foo a"sv, "-WRONGPASS invalid username-password pair or user is disabled.\r\n"sv},
    {"AUTH a b c"sv, "-ERR syntax error\r\n"sv},
    {"HELLO 2"sv, ""sv},
    {"HELLO 4"sv, "-NOPROTO unsupported protocol version\r\n"sv},
    {"HELLO 1"sv, "-NOPROTO unsupported protocol version\r\n"sv},
    {"HELLO a"sv, "-ERR Protocol version is not an integer or out of range\r\n"sv},
    {"HELLO 2 FOO"sv, "-ERR Syntax error in HELLO option 'FOO'\r\n"sv},
    {"HELLO 2 AUTH"sv, "-ERR Syntax error in HELLO option 'AUTH'\r\n"sv},
    {"HELLO 2 AUTH a"sv, "-ERR Syntax error in HELLO option 'AUTH'\r\n"sv},
    {"HELLO 2 SETNAME"sv, "-ERR Syntax error in HELLO option 'SETNAME'\r\n"sv},
    {"HELLO 2 AUTH foo b"sv,
     "-WRONGPASS invalid username-password pair or user is disabled.\r\n"sv},
    {"HELLO 2 SETNAME \"a 5b\""sv,
     "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"sv},
    {"HELLO 2 AUTH default x"sv, ""sv},
    {"HELLO 99999999999999999999"sv,
     "-ERR Protocol version is not an integer or out of range\r\n"sv},
    {"HELLO 2 SETNAME foo"sv, ""sv},
    {"CLIENT GETNAME"sv, "$3\r\nfoo\r\n"sv},
    {"RESET"sv, "+RESET\r\n"sv},
    {"RESET a"sv, "-ERR wrong number of arguments for 'reset' command\r\n"sv},
    {"CLIENT GETNAME"sv, "$-1\r\n"sv},
    {"FOO"sv, "-ERR unknown command 'FOO', with args beginning with: \r\n"sv},
    {"FOO a b"sv, "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' \r\n"sv},
    {"foo @300"sv, "-ERR unknown command 'foo', with args beginning with: '@128' \r\n"sv},
    {"@300"sv, "-ERR unknown command '@128', with args beginning with: \r\n"sv},
    {"@300 @300 @300"sv, "-ERR unknown command '@128', with args beginning with: '@128' \r\n"sv},
    {"\"FO\\x00\" \"a\\x00b\""sv,
     "-ERR unknown command 'FO', with args beginning with: 'a' \r\n"sv},
    {"\"F\\x0d\\x0aX\" \"a\\x0d\\x0ab\""sv,
     "-ERR unknown command 'F  X', with args beginning with: 'a  b' \r\n"sv},
    {"\"GET\\x00x\" a"sv, "-ERR unknown command 'GET', with args beginning with: 'a' \r\n"sv},
    {"client"sv, "-ERR wrong number of arguments for 'client' command\r\n"sv},
    {"CLIENT FOO"sv, "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n"sv},
    {"CLIENT foo a b"sv, "-ERR unknown subcommand 'foo'. Try CLIENT HELP.\r\n"sv},
    {"CLIENT @300"sv, "-ERR unknown subcommand '@128'. Try CLIENT HELP.\r\n"sv},
    {"CLIENT GETNAME a"sv, "-ERR wrong number of arguments for 'client|getname' command\r\n"sv},
    {"CLIENT SETNAME"sv, "-ERR wrong number of arguments for 'client|setname' command\r\n"sv},
    {"CLIENT SETNAME \"a 5b\""sv,
     "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"sv},
    {"CLIENT SETNAME abc"sv, "+OK\r\n"sv},
    {"CLIENT GETNAME"sv, "$3\r\nabc\r\n"sv},
    {"CLIENT SETNAME \"\""sv, "+OK\r\n"sv},
    {"CLIENT GETNAME"sv, "$-1\r\n"sv},
    {"CLIENT ID x"sv, "-ERR wrong number of arguments for 'client|id' command\r\n"sv},
    {"CLIENT KILL"sv, "-ERR wrong number of arguments for 'client|kill' command\r\n"sv},
    {"CLIENT KILL 1.2.3.4:5"sv, "-ERR No such client\r\n"sv},
    {"CLIENT KILL ID"sv, "-ERR No such client\r\n"sv},
    {"CLIENT KILL ID x"sv, "-ERR client-id should be greater than 0\r\n"sv},
    {"CLIENT KILL ID 0"sv, "-ERR client-id should be greater than 0\r\n"sv},
    {"CLIENT KILL ID 99999"sv, ":0\r\n"sv},
    {"CLIENT KILL ADDR 1.2.3.4:5"sv, ":0\r\n"sv},
    {"CLIENT KILL TYPE foo"sv, "-ERR Unknown client type 'foo'\r\n"sv},
    {"CLIENT KILL TYPE master"sv, ":0\r\n"sv},
    {"CLIENT KILL TYPE pubsub"sv, ":0\r\n"sv},
    {"CLIENT KILL USER nobody"sv, "-ERR No such user 'nobody'\r\n"sv},
    {"CLIENT KILL SKIPME foo"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT KILL FOO bar"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT KILL ID 99999 ADDR"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT KILL ID 99999 SKIPME yes"sv, ":0\r\n"sv},
    {"CLIENT LIST FOO"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT LIST TYPE"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT LIST TYPE foo"sv, "-ERR Unknown client type 'foo'\r\n"sv},
    {"CLIENT LIST TYPE master"sv, "$0\r\n\r\n"sv},
    {"CLIENT LIST TYPE pubsub"sv, "$0\r\n\r\n"sv},
    {"CLIENT LIST ID"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT LIST ID x"sv, "-ERR Invalid client ID\r\n"sv},
    {"CLIENT LIST ID 99999"sv, "$0\r\n\r\n"sv},
    {"CLIENT INFO x"sv, "-ERR wrong number of arguments for 'client|info' command\r\n"sv},
    {"CLIENT REPLY"sv, "-ERR wrong number of arguments for 'client|reply' command\r\n"sv},
    {"CLIENT REPLY FOO"sv, "-ERR syntax error\r\n"sv},
    {"CLIENT REPLY ON"sv, "+OK\r\n"sv},
    {"CLIENT NO-EVICT"sv, "-ERR wrong number of arguments for 'client|no-evict' command\r\n"sv},
    {"CLIENT NO-EVICT ON"sv, "+OK\r\n"sv},
    {"CLIENT NO-EVICT OFF"sv, "+OK\r\n"sv},
    {"CLIENT NO-EVICT x"sv, "-ERR syntax error\r\n"sv},
    {"client"sv, "-ERR wrong number of arguments for 'client' command\r\n"sv},
    {"CONFIG"sv, "-ERR wrong number of arguments for 'config' command\r\n"sv},
    {"CONFIG GET"sv, "-ERR wrong number of arguments for 'config|get' command\r\n"sv},
    {"CONFIG FOO"sv, "-ERR unknown subcommand 'FOO'. Try CONFIG HELP.\r\n"sv},
    {"CONFIG GET save"sv, "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"sv},
    {"CONFIG GET appendonly"sv, "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"sv},
    {"CONFIG GET nope"sv, "*0\r\n"sv},
    {"CONFIG GET maxmemory"sv, "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n"sv},
    {"CONFIG GET databases"sv, "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n"sv},
    {"CONFIG GET MAXMEMORY"sv, "*2\r\n$9\r\nMAXMEMORY\r\n$1\r\n0\r\n"sv},
    {"CONFIG GET maxmemory-p*"sv, "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n"sv},
    {"CONFIG SET"sv, "-ERR wrong number of arguments for 'config|set' command\r\n"sv},
    {"CONFIG SET a"sv, "-ERR wrong number of arguments for 'config|set' command\r\n"sv},
    {"CONFIG SET foo bar"sv,
     "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'\r\n"sv},
    {"CONFIG SET foo bar baz"sv, "-ERR syntax error\r\n"sv},
    {"CONFIG SET maxmemory x"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a m"
     "emory value\r\n"sv},
    {"CONFIG SET maxmemory -1"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a m"
     "emory value\r\n"sv},
    {"CONFIG SET maxmemory 100mb"sv, "+OK\r\n"sv},
    {"CONFIG GET maxmemory"sv, "*2\r\n$9\r\nmaxmemory\r\n$9\r\n104857600\r\n"sv},
    {"CONFIG SET maxmemory 1k"sv, "+OK\r\n"sv},
    {"CONFIG GET maxmemory"sv, "*2\r\n$9\r\nmaxmemory\r\n$4\r\n1000\r\n"sv},
    {"SET a b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"APPEND a b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"INCR a"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"MSET a b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"GETSET a b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"SETRANGE a 0 1"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"SETNX a b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"SETEX a 1 b"sv, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"sv},
    {"GET a"sv, "$-1\r\n"sv},
    {"DEL a"sv, ":0\r\n"sv},
    {"EXPIRE a 1"sv, ":0\r\n"sv},
    {"GETDEL a"sv, "$-1\r\n"sv},
    {"CONFIG SET maxmemory 0"sv, "+OK\r\n"sv},
    {"SET a b"sv, "+OK\r\n"sv},
    {"CONFIG SET databases 10"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable "
     "config\r\n"sv},
    {"CONFIG SET timeout x"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be p"
     "arsed into an integer\r\n"sv},
    {"CONFIG SET timeout -1"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be betwe"
     "en 0 and 2147483647 inclusive\r\n"sv},
    {"CONFIG SET timeout 0"sv, "+OK\r\n"sv},
    {"CONFIG SET timeout 1 timeout 2"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter\r"
     "\n"sv},
    {"CONFIG SET timeout 1 foo 2"sv,
     "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'\r\n"sv},
    {"CONFIG GET timeout"sv, "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"sv},
    {"CONFIG SET timeout 1 maxmemory x"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a m"
     "emory value\r\n"sv},
    {"CONFIG GET timeout"sv, "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"sv},
    {"CONFIG GET proto-max-bulk-len"sv, "*2\r\n$18\r\nproto-max-bulk-len\r\n$9\r\n536870912\r\n"sv},
    {"CONFIG RESETSTAT"sv, "+OK\r\n"sv},
    {"CONFIG RESETSTAT x"sv, "-ERR wrong number of arguments for 'config|resetstat' command\r\n"sv},
    {"CONFIG SET maxclients x"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't b"
     "e parsed into an integer\r\n"sv},
    {"CONFIG SET maxclients 0"sv,
     "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be be"
     "tween 1 and 4294967295 inclusive\r\n"sv},
    {"COMMAND FOO"sv, "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.\r\n"sv},
    {"COMMAND COUNT x"sv, "-ERR wrong number of arguments for 'command|count' command\r\n"sv},
    {"COMMAND INFO nope"sv, "*1\r\n$-1\r\n"sv},
    {"COMMAND DOCS nope"sv, "*0\r\n"sv},
    {"COMMAND LIST FOO"sv, "-ERR syntax error\r\n"sv},
    {"COMMAND LIST FILTERBY"sv, "-ERR syntax error\r\n"sv},
    {"COMMAND LIST FILTERBY FOO bar"sv, "-ERR syntax error\r\n"sv},
    {"COMMAND LIST FILTERBY MODULE x"sv, "*0\r\n"sv},
    {"COMMAND LIST FILTERBY PATTERN strl*"sv, "*1\r\n$6\r\nstrlen\r\n"sv},
    {"COMMAND LIST FILTERBY PATTERN setra*"sv, "*1\r\n$8\r\nsetrange\r\n"sv},
    {"COMMAND LIST FILTERBY ACLCAT nope"sv, "*0\r\n"sv},
    {"TIME x"sv, "-ERR wrong number of arguments for 'time' command\r\n"sv},
    {"SHUTDOWN FOO"sv, "-ERR syntax error\r\n"sv},
    {"SHUTDOWN SAVE NOSAVE"sv, "-ERR syntax error\r\n"sv},
    {"SHUTDOWN ABORT"sv, "-ERR No shutdown in progress.\r\n"sv},
    {"SHUTDOWN ABORT NOW"sv, "-ERR syntax error\r\n"sv},
    {"INFO nosuchsection"sv, "$0\r\n\r\n"sv},
    {"CONFIG SET requirepass pw"sv, "+OK\r\n"sv},
    {"GET a"sv, "$1\r\nb\r\n"sv},
    {"PING"sv, "+PONG\r\n"sv},
    {"FOO"sv, "-ERR unknown command 'FOO', with args beginning with: \r\n"sv},
    {"AUTH bad"sv, "-WRONGPASS invalid username-password pair or user is disabled.\r\n"sv},
    {"AUTH default bad"sv, "-WRONGPASS invalid username-password pair or user is disabled.\r\n"sv},
    {"AUTH default pw"sv, "+OK\r\n"sv},
    {"CONFIG SET requirepass \"\""sv, "+OK\r\n"sv},
    {"PING"sv, "+PONG\r\n"sv},
};

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }

std::string expand(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t count = 0, digit = i + 1;
    while (text[i] == '@' && digit < text.size() && text[digit] >= '0' && text[digit] <= '9') {
      count = count * 10 + static_cast<std::size_t>(text[digit++] - '0');
    }
    if (count == 0) {
      result += text[i];
    } else {
      result.append(count, 'x');
      i = digit - 1;
    }
  }
  return result;
}

std::string encode(std::string_view line) {
  std::string storage;
  std::vector<kv::TextSpan> spans;
  REQUIRE(kv::split_arguments(line, storage, spans));
  std::string out = "*" + std::to_string(spans.size()) + "\r\n";
  for (const auto& span : spans) {
    out += "$" + std::to_string(span.size) + "\r\n";
    out += storage.substr(span.offset, span.size) + "\r\n";
  }
  return out;
}

}  // namespace

TEST_CASE("kv-server answers as redis-server 7.0 does", "[kv]") {
  kv::Server server(fixed_clock);
  kv::Session session(server, {"tcp", "127.0.0.1:1000", "127.0.0.1:6379", 5});
  for (const Exchange& exchange : kExchanges) {
    INFO(exchange.command);
    session.feed(encode(expand(exchange.command)));
    session.execute();
    if (!exchange.reply.empty()) REQUIRE(session.pending_output() == expand(exchange.reply));
    session.consume_output(session.pending_output().size());
  }
}
