from .__main__ import main as main
from .arguments import (
    FinetuneArguments as FinetuneArguments,
    ProgramTrainingArguments as ProgramTrainingArguments,
)
from .recipe import (
    fill_arguments as fill_arguments,
    format_recipe as format_recipe,
    read_recipe as read_recipe,
)
from .recipes import find_program as find_program, load_kinds as load_kinds
from .run_folder import (
    describe_settings as describe_settings,
    find_checkpoint as find_checkpoint,
    read_settings as read_settings,
)
from .text_tasks import PretrainArguments as PretrainArguments
