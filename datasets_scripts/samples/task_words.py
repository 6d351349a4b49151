"""Words and templates of the built-in samples; `task_rows.py` combines them."""

# Reviews: aspects, and words by strength of the judgment, from -2 to 2.
ASPECTS = (
    "acting", "plot", "script", "music", "camera work", "dialogue", "ending", "pacing",
    "story", "cast", "direction", "humor", "editing", "lead performance", "opening scene",
)  # fmt: skip
ADJECTIVES = {
    2: ("superb", "brilliant", "wonderful", "stunning", "magnificent", "outstanding"),
    1: ("good", "nice", "pleasant", "decent", "charming", "enjoyable"),
    0: ("ordinary", "average", "conventional", "familiar", "typical", "predictable"),
    -1: ("weak", "dull", "flat", "clumsy", "thin", "tired"),
    -2: ("awful", "terrible", "dreadful", "horrible", "atrocious", "unbearable"),
}
VERBS = {
    2: ("loved", "adored"),
    1: ("liked", "enjoyed"),
    0: ("noticed", "followed"),
    -1: ("disliked", "resented"),
    -2: ("hated", "loathed"),
}
INTENSIFIERS = ("very", "really", "extremely", "truly")
EMPHASES = ("simply", "absolutely")
HEDGES = ("fairly", "rather", "quite", "mostly")
NEGATIONS = ("not", "never")
VIEWERS = ("I", "we", "my friends", "most people", "the critics", "my parents")
# None of these is a judgment of the film.
OPENINGS = (
    "in this {genre}, ", "for a {genre}, ", "in the second half, ", "after the first hour, ",
    "from beginning to end, ", "throughout the {genre}, ", "on the big screen, ", "",
)  # fmt: skip
GENRES = ("thriller", "comedy", "romance", "western", "documentary", "musical", "war film")

# Topics of questions with their synonyms, and questions about any topic.
TOPICS = (
    ("running", "jogging"),
    ("cooking", "preparing meals"),
    ("gardening", "growing plants"),
    ("photography", "taking photos"),
    ("drawing", "sketching"),
    ("public speaking", "giving speeches"),
    ("programming", "writing software"),
    ("cycling", "riding a bike"),
    ("investing", "buying stocks"),
    ("sewing", "making clothes"),
    ("woodworking", "carpentry"),
    ("fishing", "angling"),
)
QUESTIONS = (
    (
        "How do I start with {topic}?",
        "What is the best way to get into {topic}?",
        "How can a beginner take up {topic}?",
        "What are the first steps in {topic}?",
    ),
    (
        "How much does {topic} cost?",
        "Is {topic} expensive?",
        "How much money do people spend on {topic}?",
        "What is the usual price of {topic}?",
    ),
    (
        "How long does it take to get good at {topic}?",
        "How many years of practice does {topic} require?",
        "How much time do I need to master {topic}?",
        "How soon can I become skilled at {topic}?",
    ),
    (
        "What are the benefits of {topic}?",
        "Why is {topic} good for you?",
        "What do people gain from {topic}?",
        "What are the advantages of {topic}?",
    ),
    (
        "What equipment do I need for {topic}?",
        "Which tools are required for {topic}?",
        "What gear should I buy for {topic}?",
        "What do I have to carry with me for {topic}?",
    ),
    (
        "What is the best book about {topic}?",
        "Which book on {topic} should I read?",
        "Can you recommend some reading on {topic}?",
        "Is there a good text about {topic}?",
    ),
)
ASKERS = (
    "", "", "Just wondering: ", "Quick question: ", "Please help: ", "Honest question: ", "Again: ",
    "My son asks: ",
)  # fmt: skip

# Scenes: each slot with its synonyms.
SUBJECTS = (
    ("man", "guy"), ("woman", "lady"), ("child", "kid"), ("doctor", "physician"),
    ("policeman", "cop"), ("student", "pupil"), ("soldier", "trooper"), ("sailor", "seaman"),
)  # fmt: skip
ACTIONS = (
    ("washing", "cleaning"), ("fixing", "repairing"), ("buying", "purchasing"),
    ("hiding", "concealing"), ("pushing", "shoving"), ("drawing", "sketching"),
)  # fmt: skip
OBJECTS = (
    ("bicycle", "bike"), ("car", "automobile"), ("sofa", "couch"), ("cup", "mug"),
    ("jacket", "coat"), ("stone", "rock"), ("boat", "ship"), ("box", "crate"),
)  # fmt: skip
PLACES = (
    ("on the street", "on the road"), ("at the beach", "by the sea"),
    ("in the forest", "in the woods"), ("at the market", "at the bazaar"),
    ("in the classroom", "at school"), ("in the cellar", "in the basement"),
)  # fmt: skip
SCENES = (
    "A {subject} is {action} {a_object} {place}.",
    "The {subject} is {action} the {object} {place}.",
    "There is a {subject} {action} {a_object} {place}.",
    "Here is {a_object} {place}, and a {subject} is {action} it.",
)
