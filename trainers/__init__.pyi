from .arguments import (
    FastTrainingArguments as FastTrainingArguments,
    MethodArguments as MethodArguments,
)
from .data.masking import Masking as Masking
from .data.rows import (
    FlatRows as FlatRows,
    TaskCollator as TaskCollator,
    TaskDataset as TaskDataset,
    TextSource as TextSource,
    read_rows as read_rows,
    spread as spread,
)
from .data.sampling import TaskBatchSampler as TaskBatchSampler, TaskSampling as TaskSampling
from .files import (
    INPUT_ERRORS as INPUT_ERRORS,
    UsageError as UsageError,
    WriteError as WriteError,
    named_errors as named_errors,
    named_writes as named_writes,
    readable_errors as readable_errors,
    reason_of as reason_of,
    replaced_when_done as replaced_when_done,
    write_text as write_text,
)
from .methods.base import Method as Method
from .methods.extra_losses import Distillation as Distillation, RDrop as RDrop
from .methods.layers import (
    FreezeLayers as FreezeLayers,
    HeadLearningRate as HeadLearningRate,
    add_lora as add_lora,
    merge_lora as merge_lora,
)
from .problems import (
    PROBLEMS as PROBLEMS,
    ProblemType as ProblemType,
    make_problems as make_problems,
)
from .problems.base import Evaluated as Evaluated, Predicted as Predicted, Problem as Problem
from .problems.blocks import (
    Code as Code,
    Example as Example,
    Examples as Examples,
    Figure as Figure,
    Table as Table,
    calibrate as calibrate,
)
from .problems.metrics import Metric as Metric, aggregates as aggregates, glue_score as glue_score
from .problems.questions import Answer as Answer, Answered as Answered, find_answers as find_answers
from .problems.tags import Tagged as Tagged
from .reports.cards import write_card as write_card
from .reports.page import (
    Section as Section,
    draw_curves as draw_curves,
    draw_figure as draw_figure,
    report_run as report_run,
    write_page as write_page,
)
from .reports.results import (
    Choice as Choice,
    FinishedRun as FinishedRun,
    RunFacts as RunFacts,
    evaluate_run as evaluate_run,
    write_results as write_results,
)
from .task import Task as Task, TaskTraining as TaskTraining
from .training.callbacks import (
    AggregateEarlyStopping as AggregateEarlyStopping,
    LastStep as LastStep,
    TrainingDivergedError as TrainingDivergedError,
)
from .training.checks import check_arguments as check_arguments, list_metrics as list_metrics
from .training.multitask import MultiTaskTrainer as MultiTaskTrainer
from .training.resuming import (
    checkpoint_problem as checkpoint_problem,
    last_complete_checkpoint as last_complete_checkpoint,
)
