from tribar.gateway.limits.rules import Allowance, Rule, RuleBook, Subject

MINUTE = "requests_per_minute"


def requests(n: int, **selectors: str) -> Rule:
    return Rule(allowance=Allowance(requests_per_minute=n), **selectors)


def found(book: RuleBook, **subject: str) -> dict[str, int]:
    return {limit.meter.name: limit.meter.limit for limit in book.limits_of(Subject(**subject))}


def test_each_and_all_together() -> None:
    book = RuleBook([requests(5), requests(3, tenant="*"), requests(2, model="*"), requests(1, tenant="*", model="m")])
    assert found(book, tenant="a", model="m") == {
        f"all:{MINUTE}": 5,
        f"tenant=a:{MINUTE}": 3,
        f"model=m:{MINUTE}": 2,
        f"tenant=a;model=m:{MINUTE}": 1,
    }
    assert found(book, tenant="b", model="x") == {
        f"all:{MINUTE}": 5,
        f"tenant=b:{MINUTE}": 3,
        f"model=x:{MINUTE}": 2,
    }


def test_the_named_rule_holds_instead_of_the_one_for_each() -> None:
    rules = [
        requests(1, tenant="*", model="*"),
        requests(2, tenant="*", model="m"),
        requests(3, tenant="a", model="*"),
        requests(4, tenant="a", model="m"),
    ]
    for rule_book in (RuleBook(rules), RuleBook(reversed(rules))):
        limits = [
            found(rule_book, tenant=tenant, model=model)[f"tenant={tenant};model={model}:{MINUTE}"]
            for tenant, model in (("b", "x"), ("b", "m"), ("a", "x"), ("a", "m"))
        ]
        assert limits == [1, 2, 3, 4]


def test_a_key_of_its_own_and_keys_that_come_and_go() -> None:
    known = {"k1": Allowance(tokens_per_day=7)}
    book = RuleBook([requests(9, key="*")], known.get)
    assert found(book, key="k1") == {"key=k1:tokens_per_day": 7}
    assert found(book, key="k2") == {f"key=k2:{MINUTE}": 9}
    del known["k1"]
    assert found(book, key="k1") == {f"key=k1:{MINUTE}": 9}


def test_only_limits_on_requests_that_need_no_model_are_known_early() -> None:
    everything = Allowance(
        requests_per_minute=1, tokens_per_minute=2, concurrent_requests=3, requests_per_day=4, tokens_per_day=5
    )
    book = RuleBook([Rule(allowance=everything, tenant="*"), Rule(allowance=everything, tenant="*", model="*")])
    early = {limit.meter.name for limit in book.limits_of(Subject(tenant="a")) if limit.is_known_early}
    assert early == {"tenant=a:requests_per_minute", "tenant=a:requests_per_day"}
    texts = [limit.text for limit in book.limits_of(Subject(tenant="a", model="m"))]
    assert texts[0] == "1 requests per minute for the tenant 'a'"
    assert texts[2] == "3 concurrent requests for the tenant 'a'"
    assert texts[-1] == "5 tokens per day for the tenant 'a' and the model 'm'"
