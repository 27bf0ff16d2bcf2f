"""python -m ropewalk.zoo list | train NAME|positions.json -o DIR | tune ROTATION -o DIR"""

import argparse
import json
import pathlib

from ropewalk.zoo.entries import DEFAULT, ENTRIES


def _tune(args: argparse.Namespace) -> None:
    from ropewalk.zoo._tune import tune as run

    file = pathlib.Path(args.rotation)
    rotation = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else args.rotation
    settings = {key: getattr(args, key) for key in ("start", "tokens", "steps", "rate", "seed", "device")}
    run(rotation, args.out, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ropewalk.zoo", description="Small models that differ in their position encoding."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the named encodings; * marks those that are compared by default")
    train = commands.add_parser("train", help="trains one, or goes on with it")
    train.add_argument("positions", help="a name of the list, or a file with the positions of a config.json")
    train.add_argument("-o", "--out", required=True, help="folder of the model")
    train.add_argument("--twin", action="store_true", help="the bidirectional twin, on masked tokens")
    train.add_argument("--steps", type=int, default=900)
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--device", default="cpu")
    tune = commands.add_parser(
        "tune", help="tunes one at a longer length with another rotation, and measures the loss against steps"
    )
    tune.add_argument(
        "rotation", help="none (its own), linear, ntk, yarn, base:NUMBER, base:bound, or a file with a rope dictionary"
    )
    tune.add_argument("-o", "--out", required=True, help="folder of the tuned model, and of tuning.csv")
    tune.add_argument("--start", help="folder of the model: of this family, or a LLaMA with plain RoPE (default: models/)")
    tune.add_argument("--tokens", type=int, default=4096)
    tune.add_argument("--steps", type=int, default=80)
    tune.add_argument("--rate", type=float, default=1e-3)
    tune.add_argument("--seed", type=int, default=1)
    tune.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.command == "list":
        for name, positions in ENTRIES.items():
            print(f"{'*' if name in DEFAULT else ' '} {name:16} {json.dumps(positions)}")
        return
    if args.command == "tune":
        _tune(args)
        return
    from ropewalk.zoo._train import train as run

    known = ENTRIES.get(args.positions)
    if known is None and not pathlib.Path(args.positions).is_file():
        parser.error(f"{args.positions}: neither a file nor one of {', '.join(ENTRIES)}")
    positions = json.loads(pathlib.Path(args.positions).read_text(encoding="utf-8")) if known is None else known
    run(positions, args.out, bidirectional=args.twin, steps=args.steps, seed=args.seed, device=args.device)


if __name__ == "__main__":
    main()
