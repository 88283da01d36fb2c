"""Hard differences between two questions: each guard finds its slots in one text and says when two texts contradict."""

from tribar.gateway.semantic_cache.guards import (
    answer_kind,
    classes,
    dependence,
    identifiers,
    names,
    negation,
    numbers,
    oppositions,
    order,
    roles,
)
from tribar.gateway.semantic_cache.guards.base import Guard

GUARDS: tuple[Guard, ...] = (
    Guard("length", dependence.find_length, dependence.either),
    Guard("volatile", dependence.find_volatile, dependence.either),
    Guard("personal", dependence.find_personal, dependence.either),
    Guard("context", dependence.find_context, dependence.either),
    Guard("number", numbers.find, numbers.contradict),
    Guard("identifier", identifiers.find, identifiers.contradict),
    Guard("negation", negation.find, negation.contradict),
    Guard("opposition", oppositions.find, oppositions.contradict),
    Guard("class", classes.find, classes.contradict),
    Guard("answer_kind", answer_kind.find, answer_kind.contradict),
    Guard("name", names.find, names.contradict),
    Guard("role", roles.find, roles.contradict),
    Guard("order", order.find, order.contradict),
)
"""In the order in which they are asked; the first that refuses gives the verdict's reason."""
