"""The components of the OpenAPI document, in a form that client generators turn into types.

* Each enumeration is a component, named by its title. Inline ones get names from their places, and collide there.
* No component has two properties that differ in their spelling only, as taskName and task_name do: generators write
  both in the style of their language. So each naming of a run has a component of its own.
* Where an answer has one of several forms, exactly one of them fits (oneOf). Of forms that may fit at once (anyOf)
  some generators merge the fields.
"""

import re
from collections.abc import Sequence
from typing import Any

Schemas = dict[str, Any]

_REF = "#/components/schemas/"
_BOTH_NAMINGS = (
    "A run by camelCase names, with its exact end reason and trigger. Without `naming` the answer has, beside these,"
    " all fields of RunSnakeWithParams, whose end reason and trigger are folded into the shorter lists."
)


def reference(name: str) -> Schemas:
    """The schema that a component is."""
    return {"$ref": _REF + name}


def describe_union_of_namings(components: Schemas) -> None:
    """Describe the run that has both namings at once by one of them; the other is allowed beside it."""
    components["Run"] = {
        **components["RunCamel"],
        "title": "Run",
        "description": _BOTH_NAMINGS,
        "additionalProperties": True,
    }


def either(names: Sequence[str], components: Schemas) -> Schemas:
    """The schema of a document that has one of several forms; adds what it needs to `components`.

    Lists whose items alone differ become one list, of items in either form: an empty one would fit both.
    """
    forms = [components[name] for name in names]
    if all(set(form["properties"]) == set(forms[0]["properties"]) for form in forms):
        components[names[0]] = _merged(forms, components)
        for name in names[1:]:
            del components[name]
        return reference(names[0])
    return _one_of(names, components)


def _one_of(names: Sequence[str], components: Schemas) -> Schemas:
    name = "Or".join(names)
    components[name] = {
        "title": name,
        "description": f"Either {' or '.join(names)}, by what the parameters ask for.",
        "oneOf": [reference(one) for one in names],
    }
    return reference(name)


def _merged(forms: Sequence[Any], components: Schemas) -> Any:
    first = forms[0]
    if all(form == first for form in forms):
        return first
    if isinstance(first, list):
        return [_merged(items, components) for items in zip(*forms, strict=True)]
    if not isinstance(first, dict):
        return first
    if "$ref" in first:
        return _one_of([form["$ref"].removeprefix(_REF) for form in forms], components)
    return {key: _merged([form[key] for form in forms if key in form], components) for key in first}


def with_named_enumerations(schema: Any, components: Schemas) -> Any:
    """`schema` with a reference in place of each enumeration that has a title, which becomes a component.

    Raises:
        ValueError: two enumerations have one title.
    """
    if isinstance(schema, list):
        return [with_named_enumerations(one, components) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "enum" not in schema or "title" not in schema:
        return {key: with_named_enumerations(value, components) for key, value in schema.items()}
    title = schema["title"]
    named = {
        "title": title,
        "type": schema["type"],
        "enum": schema["enum"],
        # Go has one scope for the values of all enumerations.
        "x-enum-varnames": [_constant(title, value) for value in schema["enum"]],
    }
    if components.setdefault(title, named) != named:
        raise ValueError(f"{title} is the name of two enumerations")
    rest = {key: value for key, value in schema.items() if key not in named}
    return {**reference(title), **rest}


def _constant(title: str, value: str) -> str:
    """The name of a value, such as END_REASON_FAILED."""
    words = [*re.findall("[A-Z][a-z]+", title), value or "any"]
    return re.sub("[^A-Z0-9]", "_", "_".join(words).upper())
