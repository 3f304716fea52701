#!/usr/bin/env python3
"""Records real TextWorld 1.7.0 playing a game: how tests/data/textworld was made. Not run by any test.

usage: textworld_record.py GAME.z8|GAME.json OUT.jsonl      (pip install textworld==1.7.0)

A .z8 (with its .json beside it) is played as the compiled story file: logic and text. A .json is played by
TextWorld's own .json engine: logic only, for cooking games, whose story file and facts drift apart.
One line is static, then each episode has a header and a line for every step; `facts` stand only where they change.
"""
import json
import random
import sys

import textworld

STATIC = ("max_score", "objective")
LOGIC = ("admissible", "score", "won", "lost", "moves")
TEXT = ("feedback", "description", "inventory")


def record(path, out, episodes=4, steps=25):
    base, kind = path.rsplit(".", 1)
    fields = LOGIC + (TEXT if kind == "z8" else ())
    infos = textworld.EnvInfos(
        feedback=True, description=True, inventory=True, facts=True, won=True, lost=True, score=True, moves=True,
        max_score=True, objective=True, admissible_commands=True, policy_commands=True, last_action=True)
    env = textworld.start(path, infos)
    with open(base + ".json") as file:
        walkthrough = json.load(file)["metadata"].get("walkthrough") or []
    name = base.rsplit("/", 1)[-1]
    rng = random.Random(name)
    plans = [("walkthrough", walkthrough)]
    plans += [("random_admissible", None)] * episodes + [("random_moving", None)] * episodes
    with open(out, "w") as file:
        def write(line):
            file.write(json.dumps(line) + "\n")

        state = env.reset()
        write({"game": name, "textworld": textworld.__version__, **{k: state[k] for k in STATIC}})
        for ep, (kind, plan) in enumerate(plans):
            state = env.reset()
            write({"ep": ep, "kind": kind})
            command, before = None, None
            for t in range((steps if plan is None else len(plan)) + 1):
                if t:
                    choice = [c for c in state["admissible_commands"] if kind != "random_moving"
                              or not c.startswith(("examine", "look", "inventory", "eat"))]
                    command = plan[t - 1] if plan is not None else rng.choice(choice)
                    state, _, _ = env.step(command)
                state["admissible"] = state["admissible_commands"]
                line = {"ep": ep, "t": t, "cmd": command, "adm": None if t == 0 else True}
                line.update({k: state.get(k) or (0 if k == "score" else state.get(k)) for k in fields})
                line["won"], line["lost"] = bool(line["won"]), bool(line["lost"])
                facts = sorted("%s(%s)" % (f.name, ", ".join(a.name for a in f.arguments)) for f in state["_facts"])
                if facts != before:
                    line["facts"] = before = facts
                write(line)
                if line["won"] or line["lost"]:
                    break


if __name__ == "__main__":
    record(*sys.argv[1:3])
