"""Words and sentences of the built-in text; `sample_text.py` says how they are put together."""

from typing import NamedTuple


class Theme(NamedTuple):
    """What a document is about; no two themes share a noun.

    Args:
        place: Where the work is done.
        worker: Who works there.
        steps: The work, a verb and a thing each, in the order in which it is done.
    """

    place: str
    worker: str
    steps: tuple[str, ...]


def _theme(place: str, worker: str, *steps: str) -> Theme:
    return Theme(place, worker, steps)


THEMES = (
    _theme("harbour", "sailor", "moored ship", "lowered anchor", "folded sails", "scrubbed deck",
           "mended nets", "coiled ropes"),
    _theme("bakery", "baker", "sifted flour", "kneaded dough", "shaped loaves", "heated oven",
           "iced cakes", "sold bread"),
    _theme("farm", "farmer", "fed pigs", "milked cows", "ploughed field", "mowed meadow",
           "loaded cart", "closed barn"),
    _theme("school", "teacher", "rang bell", "wiped blackboard", "read poem", "explained fractions",
           "marked essays", "gathered notebooks"),
    _theme("hospital", "nurse", "made beds", "warmed tea", "bandaged wounds", "poured medicine",
           "weighed patients", "called surgeon"),
    _theme("library", "librarian", "sorted shelves", "dusted atlas", "stamped novels",
           "bound diary", "listed magazines", "lent encyclopedia"),
    _theme("station", "conductor", "swept platform", "oiled wheels", "coupled wagons",
           "checked tickets", "waved flag", "parked train"),
    _theme("garden", "gardener", "raked leaves", "dug soil", "planted tulips", "watered roses",
           "trimmed hedge", "picked apples"),
    _theme("theatre", "actor", "sewed costumes", "painted scenery", "learned script",
           "practised dance", "lit stage", "raised curtain"),
    _theme("restaurant", "cook", "peeled potatoes", "chopped onions", "stirred soup",
           "roasted chicken", "tasted sauce", "served dessert"),
    _theme("forge", "blacksmith", "fanned embers", "melted iron", "hammered horseshoe",
           "sharpened sword", "cooled steel", "moved anvil"),
    _theme("mine", "miner", "filled lanterns", "drilled tunnel", "broke rocks", "shovelled coal",
           "pushed trolley", "braced shaft"),
    _theme("bank", "cashier", "unlocked vault", "counted coins", "signed cheques", "tested gold",
           "balanced ledger", "locked safe"),
    _theme("museum", "curator", "polished statue", "framed portrait", "cleaned fossils",
           "hung tapestry", "showed crown", "wrapped vases"),
    _theme("airport", "pilot", "fuelled aircraft", "started engine", "cleared runway",
           "stowed luggage", "guided passengers", "landed helicopter"),
    _theme("laboratory", "chemist", "rinsed flasks", "heated acid", "crushed crystals",
           "dissolved powder", "adjusted microscope", "noted experiment"),
    _theme("court", "judge", "opened trial", "heard witness", "studied evidence",
           "questioned thief", "called jury", "read verdict"),
    _theme("stable", "rider", "brushed horse", "mounted saddle", "fixed bridle", "trained foal",
           "carried straw", "locked gate"),
    _theme("circus", "clown", "pitched tent", "blew trumpet", "juggled balls", "led elephant",
           "tamed lion", "crossed tightrope"),
    _theme("brewery", "brewer", "soaked barley", "boiled malt", "added hops", "cooled beer",
           "rolled barrels", "corked bottles"),
    _theme("mill", "weaver", "dyed wool", "spun yarn", "set loom", "wove cloth", "cut linen",
           "folded blankets"),
    _theme("workshop", "carpenter", "sawed planks", "smoothed timber", "fitted drawers",
           "glued chairs", "nailed table", "varnished cupboard"),
    _theme("lighthouse", "keeper", "climbed stairs", "trimmed wick", "lit lamp", "watched waves",
           "logged storm", "sounded foghorn"),
    _theme("vineyard", "grower", "pruned vines", "tied stakes", "picked grapes", "pressed juice",
           "stored wine", "rinsed baskets"),
    _theme("observatory", "astronomer", "opened dome", "aimed telescope", "found comet",
           "drew planets", "charted stars", "photographed moon"),
    _theme("studio", "musician", "tuned guitar", "played piano", "sang ballad", "beat drums",
           "recorded album", "packed violin"),
    _theme("pottery", "potter", "mixed clay", "shaped bowls", "dried jugs", "glazed plates",
           "heated kiln", "wrapped mugs"),
    _theme("zoo", "zookeeper", "fed penguins", "bathed hippo", "weighed tortoise", "calmed tiger",
           "counted parrots", "cleaned aquarium"),
    _theme("dairy", "dairyman", "warmed milk", "skimmed cream", "churned butter", "salted cheese",
           "stirred yoghurt", "rinsed buckets"),
    _theme("printery", "printer", "set letters", "mixed ink", "loaded paper", "printed newspaper",
           "folded leaflets", "tied posters"),
)  # fmt: skip

NAMES = (
    "Adam", "Alice", "Anna", "Carl", "Clara", "David", "Ella", "Emma", "Frank", "Grace", "Helen",
    "Henry", "Jack", "John", "Julia", "Laura", "Lucy", "Martin", "Oscar", "Paul", "Peter", "Rosa",
    "Simon", "Tom",
)  # fmt: skip
TOWNS = ("Ashford", "Eastwick", "Hillview", "Lakeside", "Northam", "Oakfield", "Riverton")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS = ("six", "seven", "eight", "nine", "ten", "eleven", "twelve", "one", "two", "three")
WEATHERS = ("bright", "cold", "foggy", "rainy", "warm", "windy")
MANNERS = ("carefully", "quickly", "quietly", "slowly")
QUALITIES = ("excellent", "fine", "good", "perfect")

# How a document begins and ends, a tuple of ways for each sentence.
OPENINGS = (
    (
        "On a {weather} {day} {chief} the {worker} came early to the {place} of {town}.",
        "On a {weather} {day} {chief} the {worker} opened the {place} of {town}.",
    ),
    (
        "{helper} was already at the {place} and greeted the {worker}.",
        "{helper} came to the {place} to work with the {worker}.",
    ),
)
CLOSINGS = (
    (
        "In the evening the {worker} thanked {helper} for the {quality} work at the {place}.",
        "In the evening the {worker} paid {helper} for the {quality} work at the {place}.",
    ),
    (
        "Then {chief} the {worker} and {helper} closed the {place} and went home through {town}.",
        "Then {chief} the {worker} and {helper} left the {place} and went home through {town}.",
    ),
)
# A step of the work, and what is said of it next.
EVENTS = (
    "At {hour} {chief} the {worker} {manner} {verb} the {thing} at the {place}.",
    "At {hour} the {worker} {verb} the {thing} with {helper} at the {place}.",
    "At {hour} {helper} {verb} the {thing} for the {worker} of the {place}.",
)
REMARKS = (
    "The {worker} told {helper} that the {thing} of the {place} looked {quality}.",
    "{helper} asked the {worker} of the {place} to take a look at the {thing}.",
    "That was {quality} work for a {worker}, said {chief}, and {helper} smiled at the {thing}.",
)
