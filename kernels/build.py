#!/usr/bin/env python3
"""Compiles the kernels for GPUs, without one: `prebuilt/`, its manifest and the report of what each kernel uses.

    python3 kernels/build.py           writes kernels/prebuilt: code is gzipped, hashes are of what is inside
    python3 kernels/build.py --check   compiles again and compares every byte; 0 equal, 1 not, 2 no compiler to be had

The compilers are NVRTC's Python wheels, which pip fetches into kernels/.toolchain: 12.9 for cubins (drivers from 525
on), 12.2 for PTX (drivers from 535 on), which serves chips that no cubin is made for.
"""

import ctypes
import gzip
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PREBUILT = HERE / "prebuilt"
UNIT = "kernels.cu"
OPTIONS = ["-std=c++17", "-default-device", "-fmad=false"]
# By NVRTC's version: its wheel and that of the headers, and the targets.
TOOLCHAINS = {
    "12.9": (["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-runtime-cu12==12.9.79"], ["sm_75", "sm_80", "sm_89", "sm_90"]),
    "12.2": (["nvidia-cuda-nvrtc-cu12==12.2.140", "nvidia-cuda-runtime-cu12==12.2.140"], ["compute_75", "compute_80"]),
}


def sources():
    """Every file that a kernel is made of, by name."""
    files = [*HERE.glob("*.cu"), *HERE.glob("*.cuh")]
    return {file.name: file.read_bytes() for file in sorted(files)}


def toolchain(version):
    """The folder of a version's packages, fetched if they are not here."""
    folder = HERE / ".toolchain" / version
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        wheels, _ = TOOLCHAINS[version]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", folder]
        subprocess.run([*pip, *wheels], check=True)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
            wheel.unlink()
        (folder / "done").touch()
    return folder / "nvidia"


class Compiler:
    """NVRTC of one version."""

    def __init__(self, version):
        self.folder = toolchain(version)
        self.library = ctypes.CDLL(str(self.folder / "cuda_nvrtc/lib/libnvrtc.so.12"))

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def call(self, function, *arguments):
        if getattr(self.library, function)(*arguments):
            raise SystemExit(f"{function} failed")

    def compile(self, files, target):
        headers = {name: text for name, text in files.items() if name != UNIT}
        names = (ctypes.c_char_p * len(headers))(*[name.encode() for name in headers])
        texts = (ctypes.c_char_p * len(headers))(*headers.values())
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), files[UNIT], UNIT.encode(), len(headers), texts, names)
        options = [*OPTIONS, f"-arch={target}", f"-I{self.folder / 'cuda_runtime/include'}"]
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if self.library.nvrtcCompileProgram(program, len(options), array):
            raise SystemExit(f"{target}:\n" + self.text(program, "ProgramLog").decode())
        if target.startswith("sm"):
            return self.text(program, "CUBIN")
        return self.text(program, "PTX").rstrip(b"\0")


def resources(cubin):
    """Per kernel: registers, bytes of stack (spills and arrays in local memory), bytes of shared memory.

    Source: ELF sections of a cubin. `.nv.info` has (kind, symbol, value) records: 0x2f registers, 0x11 frame size.
    """
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]

    def string(section, offset):
        start = headers[section][4] + offset
        return cubin[start : cubin.index(b"\0", start)].decode()

    sections = {string(names_at, header[0]): header for header in headers}
    symbols = sections[".symtab"]
    names = [
        string(symbols[6], struct.unpack_from("<I", cubin, symbols[4] + at)[0]) for at in range(0, symbols[5], 24)
    ]
    found = {}
    at, end = sections[".nv.info"][4], sections[".nv.info"][4] + sections[".nv.info"][5]
    while at < end:
        form, kind, length = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form == 4:
            if kind in (0x11, 0x2F):
                symbol, value = struct.unpack_from("<II", cubin, at)
                found.setdefault(names[symbol], {})[kind] = value
            at += length
    rows = {}
    for name, values in found.items():
        if 0x2F in values:
            shared = sections.get(f".nv.shared.{name}")
            rows[name] = (values[0x2F], values.get(0x11, 0), shared[5] if shared else 0)
    return rows


def report(cubins):
    """A table: registers/stack/shared per kernel and architecture."""
    tables = {target: resources(cubin) for target, cubin in cubins.items()}
    lines = [f"{'kernel':24}" + "".join(f"{target:>16}" for target in tables) + "   registers/stack/shared bytes"]
    for name in sorted(next(iter(tables.values()))):
        cells = ("/".join(map(str, table[name])) for table in tables.values())
        lines.append(f"{name:24}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines) + "\n"


def build():
    """The content of each file of `prebuilt`, by name."""
    files, made = sources(), {}
    for version, (_, targets) in TOOLCHAINS.items():
        compiler = Compiler(version)
        for target in targets:
            suffix = "cubin" if target.startswith("sm") else "ptx"
            made[f"{target}.{suffix}"] = compiler.compile(files, target)
    digest = lambda content: hashlib.sha256(content).hexdigest()
    manifest = {
        "options": OPTIONS,
        "toolchains": {version: wheels for version, (wheels, _) in TOOLCHAINS.items()},
        "sources": {name: digest(content) for name, content in files.items()},
        "outputs": {name: digest(content) for name, content in made.items()},
    }
    cubins = {name.removesuffix(".cubin"): content for name, content in made.items() if name.endswith("cubin")}
    made["resources.txt"] = report(cubins).encode()
    made["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return made


def pack(name, content):
    """A file's name and content in the folder."""
    packs = name.endswith((".cubin", ".ptx"))
    return (f"{name}.gz", gzip.compress(content, mtime=0)) if packs else (name, content)


def unpack(name):
    """What lies in the folder under this name of `build`."""
    file = PREBUILT / pack(name, b"")[0]
    content = file.read_bytes() if file.exists() else b""
    return gzip.decompress(content) if file.suffix == ".gz" else content


def main():
    check = sys.argv[1:] == ["--check"]
    try:
        made = build()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"kernels/build.py: no compiler: {error}", file=sys.stderr)
        return 2
    PREBUILT.mkdir(exist_ok=True)
    different = [name for name, content in made.items() if unpack(name) != content] if check else []
    for name in different:
        print(f"kernels/prebuilt/{name} is not what kernels/build.py makes", file=sys.stderr)
    if not check:
        for name, content in map(pack, made, made.values()):
            (PREBUILT / name).write_bytes(content)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
