"""Why a row of a source was left out: a closed list, each with its sentence.

A sampled document counts its dropped rows under these names and no others, so a reader of two
documents compares like with like.
"""

from __future__ import annotations

REASONS: dict[str, str] = {
    # the row itself
    "missing_field": "a field that is needed is absent or null",
    "wrong_type": "a field holds another kind of value than its format says",
    "empty": "a text is empty or blank",
    "label": "prose, or a value nobody defined, stands where a label should be",
    "role_order": "the turns are not user and assistant in turn, user first",
    "too_few_exchanges": "the conversation ends before the prefix does",
    "several_turns": "the request is a conversation of several turns, not one question",
    "has_system": "the request brings a system prompt of its own",
    # what its own flags say
    "language": "it is not in the language asked for, by its own field or by its words",
    "toxic": "it is marked toxic or was flagged by moderation",
    "redacted": "something in it was redacted",
    # what its text is like
    "mojibake": "its letters were decoded wrongly, or are no letters",
    "template_tokens": "it holds tokens of a chat template",
    "placeholder": "it holds the placeholder of a question",
    "page_noise": "it brings along pieces of a web page",
    "newlines": "it has too many line ends in a row",
    "script": "too few of its letters are Latin",
    "characters": "it is too short or too long, in characters",
    "forbidden": "it holds a word that the plan forbids",
    "avoided": "it holds a word of the topics to avoid",
    # what it would be used for
    "no_topic": "it belongs to none of the topics asked for",
    "topic_screen": "the topic screen turned it down",
    "tokens": "it is too short or too long, in tokens of the plan's model",
    "sentences": "it has too few or too many sentences",
    "no_article": "it does not begin as a description of one person",
    "first_person": "it goes on in the first person",
    "grammar": "its article does not fit the word after it",
    "variant": "it is a variant of another item (another format of the same question)",
    "no_claim": "the user claims nothing wrong in it",
    "claim_is_true": "what the user claims is true",
    "no_truth": "it is a matter of opinion, so no answer is the true one",
    "unpaired": "its other answer is missing",
    "same_answers": "its two answers are the same once normalised",
    "excluded": "the spec leaves out what one of its columns says",
    "no_slot": "no slot of the spec asks for its kind",
    # what else is there
    "duplicate": "the same content, normalised, stands in another row",
    "near_copy": "it is nearly the same as a row that was drawn",
}
