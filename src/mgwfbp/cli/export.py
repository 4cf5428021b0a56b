"""mgwfbp export"""

from __future__ import annotations

import click

from mgwfbp.cli.options import argument, examples, option, plugin
from mgwfbp.kernels import kernel_set
from mgwfbp.runs.trained import trained


@click.command(
    "export",
    short_help="The weights of a trained net in one file.",
    **examples("""
        mgwfbp export runs/lenet -o lenet.safetensors
        mgwfbp export runs/resnet18 --torch -o resnet18.safetensors
    """),
)
@argument("where", metavar="RUN|FILE")
@plugin
@option("-o", "--output", required=True, metavar="FILE.safetensors", help="Where to write them.")
@option("--torch", "for_torch", is_flag=True, help="PyTorch's names and layouts; torchvision's for ResNets.")
def command(where: str, output: str, for_torch: bool) -> None:
    """Named tensors as safetensors; the file's metadata say model, classes, normalisation and options.

    With --torch they load into a PyTorch module whose parts are called like our layers, and ResNet-18 to 152 into
    torchvision's.
    """
    net = trained(where, kernels=kernel_set("numpy"))
    note = net.export(output, torch=for_torch)
    tensors, values = len(net.net.places), sum(net.net.arena.layer_parameters)
    click.echo(f"{output}: {net.about['model']}, {tensors} tensors, {values:,} parameters")
    if note:
        click.echo(f"to load into torchvision's net: {note}")
