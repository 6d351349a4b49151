"""Words and templates of the built-in text; `documents.py` combines them."""

# Place, worker, and the steps of the work in order, each a verb and a thing; no two themes share a
# noun.
THEMES = (
    ("harbour", "sailor", "moored ship", "lowered anchor", "folded sails", "scrubbed deck",
     "mended nets", "coiled ropes"),
    ("bakery", "baker", "sifted flour", "kneaded dough", "shaped loaves", "heated oven",
     "iced cakes", "sold bread"),
    ("farm", "farmer", "fed pigs", "milked cows", "ploughed field", "mowed meadow",
     "loaded cart", "closed barn"),
    ("school", "teacher", "rang bell", "wiped blackboard", "read poem", "explained fractions",
     "marked essays", "gathered notebooks"),
    ("hospital", "nurse", "made beds", "warmed tea", "bandaged wounds", "poured medicine",
     "weighed patients", "called surgeon"),
    ("library", "librarian", "sorted shelves", "dusted atlas", "stamped novels",
     "bound diary", "listed magazines", "lent encyclopedia"),
    ("station", "conductor", "swept platform", "oiled wheels", "coupled wagons",
     "checked tickets", "waved flag", "parked train"),
    ("garden", "gardener", "raked leaves", "dug soil", "planted tulips", "watered roses",
     "trimmed hedge", "picked apples"),
    ("theatre", "actor", "sewed costumes", "painted scenery", "learned script",
     "practised dance", "lit stage", "raised curtain"),
    ("restaurant", "cook", "peeled potatoes", "chopped onions", "stirred soup",
     "roasted chicken", "tasted sauce", "served dessert"),
    ("forge", "blacksmith", "fanned embers", "melted iron", "hammered horseshoe",
     "sharpened sword", "cooled steel", "moved anvil"),
    ("mine", "miner", "filled lanterns", "drilled tunnel", "broke rocks", "shovelled coal",
     "pushed trolley", "braced shaft"),
)  # fmt: skip

NAMES = (
    "Adam", "Albert", "Alice", "Anna", "Bruno", "Carl", "Cecil", "Clara", "Daisy", "David", "Edith",
    "Ella", "Emma", "Felix", "Frank", "George", "Grace", "Helen", "Henry", "Hugo", "Irene", "Jack",
    "James", "John", "Julia", "Karen", "Laura", "Louis", "Lucy", "Maria", "Martin", "Nora", "Oscar",
    "Paul", "Peter", "Philip", "Rosa", "Ruth", "Sarah", "Simon", "Tom", "Victor", "Walter", "Wendy",
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
# A step of the work, and a remark about it.
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
