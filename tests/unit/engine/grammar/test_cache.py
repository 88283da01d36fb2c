from collections import OrderedDict
from random import Random

from tribar.engine.grammar.cache import GrammarCache


def test_against_the_obvious() -> None:
    for seed in range(20):
        rng = Random(seed)
        max_entries, max_chars = rng.randint(1, 6), rng.randint(5, 30)
        cache: GrammarCache[int] = GrammarCache(max_entries, max_chars)
        model: OrderedDict[str, int] = OrderedDict()
        for i in range(200):
            source = "s" * rng.randint(1, 12)
            if rng.random() < 0.5:
                cache.put(source, i)
                model.pop(source, None)
                model[source] = i
                while len(model) > max_entries or sum(map(len, model)) > max_chars:
                    model.popitem(last=False)
            else:
                assert cache.get(source) == model.get(source)
                if source in model:
                    model.move_to_end(source)
            assert len(cache) == len(model)
