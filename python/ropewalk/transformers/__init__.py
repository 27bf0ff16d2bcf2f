"""One line puts any method of this library on a causal model of Hugging Face transformers (4.57 and 5).

    with ropewalk.transformers.applied(model, "yarn", factor=4):
        model.generate(...)
    plan = ropewalk.transformers.apply(model, "rerope+log-n", factor=8)
    ropewalk.transformers.restore(model)

Methods that change frequencies alone overwrite the buffers of the model's rotary modules. Position-remapping methods
(ReRoPE, leaky ReRoPE, Self-Extend, dual chunk attention, attention sinks) and log-n attention make the rotation of the
modules the identity, so that the cache holds unrotated keys, and register an attention function that rotates queries
and keys when it reads them, once per view of the map.

Nothing here changes weights, and `restore` gives the model back bit for bit. docs/python-transformers.md has the
families and what is refused.
"""

from ropewalk.transformers._apply import applied, apply, plan_of, restore

__all__ = ["applied", "apply", "plan_of", "restore"]
