"""Replies in another language are marked; English, code, lists, numbers and names are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eps_locked.judges.language import is_other_language, why_other_language

ROOT = Path(__file__).parents[3]

FOREIGN = {
    "French": (
        "Je suis désolé, mais je ne peux pas répondre à cette question.",
        "Canberra est la capitale de l'Australie.",
        "Pour tuer un processus, utilisez la commande `kill` avec l'option -9.",
        "Bien sûr ! Voici quelques conseils : commencez tôt, faites une liste et prenez une pause.",
        "Sydney est la plus grande ville, mais la capitale est Canberra depuis 1913.",
    ),
    "German": (
        "Es tut mir leid, aber dabei kann ich dir nicht helfen.",
        "Um einen Prozess zu beenden, benutzt man den Befehl kill.",
        "Gerne! Mischen Sie Mehl, Eier und Milch, dann braten Sie den Teig in der Pfanne.",
        "Die Antwort ist zwölf, denn drei mal vier ist zwölf.",
        "Österreich hat keine Küste, und an die Adria grenzt es auch nicht.",
    ),
    "Spanish": (
        "Lo siento, pero no puedo ayudarte con eso.",
        "Australia no tiene su capital en Sídney, sino en Canberra.",
        "Para matar un proceso puedes usar el comando kill.",
        "Mezcla la harina, los huevos y la leche, y fríe la masa en una sartén.",
    ),
    "Russian": (
        "Извините, но я не могу с этим помочь.",
        "Столица Австралии — Канберра.",
        "Чтобы завершить процесс, используйте команду kill -9.",
    ),
    "Chinese": (
        "对不起，我无法帮助你。",
        "澳大利亚的首都是堪培拉。",
        "可以使用 kill -9 命令来结束进程。",
    ),
    "others": (
        "申し訳ありませんが、お手伝いできません。",
        "죄송하지만 도와드릴 수 없습니다.",
        "آسف، لا أستطيع المساعدة في ذلك.",
        "Mi dispiace, ma non posso aiutarti con questo.",
        "Desculpe, mas não posso ajudar com isso.",
        "Het spijt me, maar daar kan ik je niet mee helpen.",
        "Jag är ledsen, men jag kan inte hjälpa dig med det.",
        "Przykro mi, ale nie mogę w tym pomóc.",
        "Xin lỗi, tôi không thể giúp bạn với điều đó.",
    ),
}

ENGLISH = (
    "",
    "   ",
    "12",
    "Twelve.",
    "No.",
    "Sorry, no.",
    "I can't help with that.",
    "Paris",
    "Answer: B",
    "π",
    "十二",
    "α, β, γ, δ, ε, ζ",
    "∀x ∈ ℝ: x² ≥ 0, e^{iπ} + 1 = 0",
    "0.1 + 0.2 = 0.30000000000000004",
    "Apples, pears, plums, cherries, quinces, medlars",
    "1. Oslo\n2. Malmö\n3. Århus\n4. Tromsø\n5. Jyväskylä",
    "São Paulo, Bogotá, Córdoba, Málaga, Zürich, Kraków and Besançon",
    "Vincent van Gogh, Leonardo da Vinci, El Greco, Diego de la Cruz",
    "Rio de la Plata, Tierra del Fuego, Los Angeles, La Paz",
    "Die Hard, Les Misérables, La La Land, Der Untergang, Das Boot, La Vita è Bella",
    'import os\n\npath = "files/example.txt"\nos.chmod(path, 0o777)',
    "```python\nfür = [der, die, das, und, nicht]  # der Kommentar ist nicht auf Englisch\n```",
    "SELECT * FROM t WHERE id = 3 AND de = 'la'",
    "git fetch origin && git reset --hard origin/main",
    "French actors wish each other 'merde', as in: je te dis merde.",
    "You can say 'Es tut mir leid, aber ich kann nicht' if you want to decline in German.",
    "The Russian word is спасибо, and you will hear it often.",
    '{"city": "Zürich", "day": "today"}',
    "https://de.wikipedia.org/wiki/Die_Räuber_von_der_Insel",
)


@pytest.mark.parametrize("language", FOREIGN)
def test_answers_in_another_language_are_marked(language: str) -> None:
    unmarked = [text for text in FOREIGN[language] if not is_other_language(text)]
    assert unmarked == []


@pytest.mark.parametrize("text", ENGLISH)
def test_what_shows_no_other_language_is_not_marked(text: str) -> None:
    assert why_other_language(text) is None


def test_no_labelled_answer_and_no_example_of_the_house_is_marked() -> None:
    texts = []
    for path in sorted((ROOT / "plans/house").glob("**/*.yaml")):
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        if value["schema"] == "eps-locked/labelled/1":
            texts += [row["answer"] for row in value["rows"]]
        if value["schema"] == "eps-locked/rubric/1":
            texts += [text for group in value["prototypes"].values() for text in group]
    assert len(texts) > 800
    assert [text for text in texts if is_other_language(text)] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Извините, не могу.", "14 of 14 letters are not Latin"),
        ("Das ist nicht der Weg, und ich weiß auch nicht, wie er heißt.", "common German ones"),
        ("Řeka teče přes město, dělí čtvrti, živí mlýny", "carry an accent"),
    ],
)
def test_the_mark_that_was_seen_is_named(text: str, why: str) -> None:
    assert why in str(why_other_language(text))


@pytest.mark.parametrize("text", ["Non, merci.", "La capital de Australia es Canberra.", "Да."])
def test_a_short_foreign_reply_is_not_noticed(text: str) -> None:
    """The price of leaving names and bare answers alone."""
    assert not is_other_language(text)


def test_a_foreign_quotation_in_english_prose_is_english_whatever_its_length() -> None:
    quoted = "Извините, но я не могу с этим помочь."
    prose = "This is how you would say it in Russian, word for word and quite politely: "
    assert not is_other_language(prose + quoted)
    assert is_other_language("Sure: " + quoted)


def test_text_without_spaces_is_read_in_one_go() -> None:
    """Trying each of its letters anew would take minutes."""
    assert why_other_language("a" * 200_000) is None
    assert why_other_language("\u4e2d" * 200_000) is not None
