"""What is asked of a run that it cannot give: rules, filters, new people and items; runs repeated, replayed, served."""

from collections.abc import Callable

from table import Case, document, gone, several, text

TRAIN = "divmf train synthetic:60x40x900 -o out -q --rules rules.toml"
ASKED = "divmf recommend run -o out.csv -q {}"
LIVE = "divmf.Live('run', catalog='shop.csv', rules=divmf.Rules({}))"
SHOP = text("shop.csv", "item_id,seats,seller\n" + "".join(f"i{n:05d},{n},{'ab'[n % 2]}\n" for n in range(40)))


def asked(about: str, call: str) -> Case:
    """A request that a service cannot answer."""
    return Case(about, call, SHOP)


def rules(content: str) -> Callable[[], None]:
    """A file of rules beside a catalog."""
    return several(SHOP, text("rules.toml", content))


RULES = [
    Case("rules that are not there", TRAIN, names="rules.toml"),
    Case("rules that are no TOML", TRAIN, rules("[floor\n"), "rules.toml"),
    Case("a rule that does not exist", TRAIN, rules("[ceiling]\ncount = 1\n"), "rules.toml"),
    Case("a key that does not exist", TRAIN, rules("[floor]\ncounts = 1\n"), "rules.toml"),
    Case("a floor said in two ways", TRAIN, rules("[floor]\ncount = 1\ncolumn = 'seats'\n"), "rules.toml"),
    Case("a floor below nothing", TRAIN, rules("[floor]\ncount = -1\n"), "rules.toml"),
    Case("a share above all slots", TRAIN, rules("[groups.seller]\nfloor = '200%'\n"), "rules.toml"),
    Case(
        "more showings than can be counted",
        TRAIN,
        rules("[groups.seller]\ncap = {a = 18446744073709551616}\n"),
        "rules.toml",
    ),
    Case("a group without a rule", TRAIN, rules("[groups.seller]\n"), "rules.toml"),
    Case("a group without a catalog", TRAIN, rules("[groups.seller]\nfloor = '5%'\n"), "rules.toml"),
    Case(
        "a column that the catalog lacks",
        TRAIN + " --catalog shop.csv",
        rules("[capacity]\ncolumn = 'chairs'\n"),
        "rules.toml",
    ),
    Case(
        "a column of words for numbers",
        TRAIN + " --catalog shop.csv",
        rules("[capacity]\ncolumn = 'seller'\n"),
        "rules.toml",
    ),
    Case("an item that does not exist", TRAIN, rules("[floor]\nitems = {tea = 1}\n"), "rules.toml"),
    Case(
        "a floor above a capacity", TRAIN, rules("[capacity]\ncount = 2\n[floor]\nitems = {i00001 = 3}\n"), "rules.toml"
    ),
    Case("floors above all slots", TRAIN, rules("[floor]\ncount = 8\n"), "rules.toml"),
    Case(
        "a floor for what is left out",
        TRAIN,
        rules("[floor]\nitems = {i00001 = 3}\n[filter]\nexclude = ['i00001']\n"),
        "rules.toml",
    ),
    Case(
        "a filter that leaves nothing",
        TRAIN + " --catalog shop.csv",
        rules("[filter]\nexclude = 'seats >= 0'\n"),
        "rules.toml",
    ),
    Case(
        "an expression that is no SQL",
        TRAIN + " --catalog shop.csv",
        rules("[filter]\nexclude = 'seats >'\n"),
        "rules.toml",
    ),
    Case("what is excluded and allowed", TRAIN, rules("[filter]\nexclude = ['a']\nallow = ['a']\n"), "rules.toml"),
    Case("rules for the paper's method", TRAIN + " --preset paper", rules("[floor]\ncount = 1\n")),
    Case("rules that say nothing", TRAIN, rules("# soon\n"), "rules.toml"),
    Case(
        "a floor above a cap",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\nfloor = 60\ncap = '10%'\n"),
        "rules.toml",
    ),
    Case(
        "floors that are more than everything",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\nfloor = '60%'\n"),
        "rules.toml",
    ),
    Case(
        "floors of two rules that are more than everything",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\nfloor = {a = 150}\n[promote]\nwhere = \"seller = 'b'\"\nshare = '60%'\n"),
        "rules.toml",
    ),
    Case(
        "a floor of a group that does not exist",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\nfloor = {c = 3}\n"),
        "rules.toml",
    ),
    Case("capacities with too little room", TRAIN, rules("[capacity]\ncount = 2\n"), "rules.toml"),
    Case(
        "caps with too little room",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\ncap = '30%'\n"),
        "rules.toml",
    ),
    Case(
        "too few of each group in a list",
        TRAIN + " --catalog shop.csv",
        rules("[groups.seller]\nper_list = 2\n"),
        "rules.toml",
    ),
    Case("none of a group in a list", TRAIN, rules("[groups.seller]\nper_list = 0\n"), "rules.toml"),
    Case(
        "users left without items",
        TRAIN + " --catalog shop.csv",
        rules("[filter]\nexclude = 'seats > 6'\n"),
        "rules.toml",
    ),
    Case(
        "one user left without items",
        TRAIN,
        several(
            text("rules.toml", "[filter]\nallow = 'allow.csv'\n"),
            text("allow.csv", "user_id,item_id\nu00001,i00002\nu00001,i00003\n"),
        ),
        "rules.toml",
    ),
    Case("nothing that is allowed", TRAIN, rules("[filter]\nallow = []\n"), "rules.toml"),
    Case("a left out item that does not exist", TRAIN, rules("[filter]\nexclude = ['tea']\n"), "rules.toml"),
    Case("a file of left out items that is not there", TRAIN, rules("[filter]\nexclude = 'gone.csv'\n"), "rules.toml"),
    Case("a promotion above all slots", TRAIN, rules("[promote]\nwhere = 'new'\nshare = '120%'\n"), "rules.toml"),
    Case("a promotion that is no share", TRAIN, rules("[promote]\nwhere = 'new'\nshare = 10\n"), "rules.toml"),
    Case(
        "a promotion of nothing",
        TRAIN + " --catalog shop.csv",
        rules("[promote]\nwhere = 'seats > 90'\nshare = '10%'\n"),
        "rules.toml",
    ),
    Case(
        "a target of words",
        TRAIN + " --catalog shop.csv",
        rules("[target]\nby = 'seller'\n"),
        "rules.toml",
    ),
    Case(
        "a column of capacities that is empty",
        TRAIN + " --catalog x.csv",
        several(
            text("x.csv", "item_id,seats\n" + "".join(f"i{n:05d},\n" for n in range(40))),
            text("rules.toml", "[capacity]\ncolumn = 'seats'\n"),
        ),
        "rules.toml",
    ),
    Case(
        "compared rules that the catalog lacks",
        "divmf compare run -o out --rules rules.toml --catalog shop.csv",
        rules("[capacity]\ncolumn = 'chairs'\n"),
        "rules.toml",
    ),
    Case(
        "trained groups without a catalog",
        "divmf train synthetic:60x40x900 -o out -q --groups seller",
    ),
    Case(
        "trained groups that the catalog lacks",
        "divmf train synthetic:60x40x900 -o out -q --groups colour --catalog shop.csv",
        SHOP,
    ),
    Case("a catalog among the rules", TRAIN, rules("catalog = 'shop.csv'\n"), "rules.toml"),
]

ASKS = [
    Case("a list of left out items that is not there", ASKED.format("--exclude x.csv"), names="x.csv"),
    Case("left out items that are unknown", ASKED.format("--exclude x.csv"), text("x.csv", "item_id\ntea\n"), "x.csv"),
    Case("a condition without a catalog", ASKED.format("--where \"seller = 'a'\"")),
    Case("a condition that holds for nothing", ASKED.format("--where \"seller = 'z'\" --catalog shop.csv"), SHOP),
    Case("a condition on a column that is not there", ASKED.format("--where \"shop = 'a'\" --catalog shop.csv"), SHOP),
    Case(
        "a catalog that lacks items",
        ASKED.format("--where 'seats > 1' --catalog x.csv"),
        text("x.csv", "item_id,seats\ni00001,2\n"),
        "x.csv",
    ),
    Case(
        "histories of unknown items",
        ASKED.format("--histories x.csv"),
        text("x.csv", "user_id,item_id\nnew,tea\n"),
        "x.csv",
    ),
    Case("histories without a row", ASKED.format("--histories x.csv"), text("x.csv", "user_id,item_id\n"), "x.csv"),
    Case("histories without items", ASKED.format("--histories x.csv"), text("x.csv", "user_id\nnew\n"), "x.csv"),
    Case(
        "histories with weights for a model without",
        ASKED.format("--histories x.csv --weight plays"),
        text("x.csv", "user_id,item_id,plays\nnew,i00001,2\n"),
        "x.csv",
    ),
    Case(
        "a column of weights without histories",
        ASKED.format("--weight plays"),
    ),
    Case(
        "histories of some users",
        ASKED.format("--histories x.csv --users x.csv"),
        text("x.csv", "user_id,item_id\nnew,i00001\n"),
    ),
    Case(
        "new items that are not new",
        ASKED.format("--new-items x.csv"),
        text("x.csv", "item_id,like\ni00001,i00002\n"),
        "x.csv",
    ),
    Case(
        "new items like nothing known",
        ASKED.format("--new-items x.csv"),
        text("x.csv", "item_id,like\ntea,jam\n"),
        "x.csv",
    ),
    Case(
        "new items of which nothing is known",
        ASKED.format("--new-items x.csv"),
        text("x.csv", "item_id\ntea\n"),
        "x.csv",
    ),
]

SERVICE = [
    Case("a run that is no run", "divmf serve data", names="data"),
    Case("a run without a point", "divmf serve run --port 0", gone("run/picked.json"), "run"),
    Case("an address that others reach, without a token", "divmf serve run --host 0.0.0.0 --port 0"),
    Case("a token that is too short", "divmf serve run --port 0 --token short"),
    Case("a port that there is not", "divmf serve run --port 70000"),
    Case("a store of an unknown kind", "divmf serve run --port 0 --store mysql://localhost/x"),
    Case("a catalog that is not there", "divmf serve run --port 0 --catalog shop.csv", names="shop.csv"),
    Case("a group that items have not", "divmf serve run --port 0 --catalog shop.csv --group colour", SHOP),
    Case("a group without a catalog", "divmf serve run --port 0 --group colour"),
    Case("rules that are no TOML", "divmf serve run --port 0 --rules rules.toml", rules("[floor\n"), "rules.toml"),
    Case(
        "rules with a column that the catalog lacks",
        "divmf serve run --port 0 --catalog shop.csv --rules rules.toml",
        rules("[capacity]\ncolumn = 'chairs'\n"),
        "rules.toml",
    ),
    Case("rules with an item that does not exist", LIVE.format("floor={'items': {'tea': 1}}"), SHOP),
    Case("rules with a group that items have not", LIVE.format("groups={'colour': {'cap': 3}}"), SHOP),
    asked("live rules with a group that items have not", 'PUT /rules {"groups": {"colour": {"cap": 1}}}'),
    asked("live rules with an item that does not exist", 'PUT /rules {"floor": {"items": {"tea": 1}}}'),
    asked("live rules with a misspelt word", 'PUT /rules {"capacity": {"colum": "seats"}}'),
    asked("live rules that name a file", 'PUT /rules {"filter": {"exclude": "list.csv"}}'),
    asked("live rules with a table that there is not", 'PUT /rules {"caps": {"count": 3}}'),
    asked("live rules with a floor above a cap", 'PUT /rules {"groups": {"seller": {"floor": 9, "cap": 2}}}'),
    asked("a request that is not JSON", 'POST /recommend {"user": "u1"'),
    asked("a request with a misspelt field", 'POST /recommend {"usr": "u1"}'),
    asked("a request for more items than a page may have", 'POST /recommend {"k": 500}'),
    asked("a request by an attribute that items have not", 'POST /recommend {"where": {"colour": "red"}}'),
    asked("a page with an item that there is not", 'POST /shown {"items": ["tea"]}'),
    asked("a new item like one that there is not", 'POST /items {"items": [{"item": "tea", "similar": ["jam"]}]}'),
    asked("a point that the curve has not", 'POST /point {"epoch": 999}'),
    asked("an item that there is not", "GET /items/tea"),
    asked("a path that there is not", "GET /tea"),
    Case("no run to be repeated", "divmf rerun data", names="data"),
    Case(
        "a repeated run of a damaged one",
        "divmf rerun run -o again -q",
        document("run/config.json", settings__k="many"),
        "run/config.json",
    ),
    Case("a replayed log that is not there", "divmf replay run x.csv", names="x.csv"),
    Case("a replayed log without users", "divmf replay run x.csv", text("x.csv", "item_id\ni00001\n"), "x.csv"),
]
