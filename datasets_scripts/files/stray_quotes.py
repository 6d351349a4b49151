"""Records of delimited files that are several rows, which two stray quotes have joined."""

from collections.abc import Sequence

# Different values of a column, and characters of one, that are kept to recognize its values.
MOST_VALUES = 1_000
LONGEST_VALUE = 100
FEW_VALUES = 10  # that are labels in a file of any length
MANY_ROWS = 20  # in which all labels occur
MOST_NAMED = 3  # records in a message


class Column:
    """The values of a column in the records of one line."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        self.count = 0
        self.has_spaces = False

    def add(self, value: str) -> None:
        """Keep a value, unless there are too many."""
        self.count += 1
        self.has_spaces = self.has_spaces or " " in value
        if len(value) <= LONGEST_VALUE and len(self.values) <= MOST_VALUES:
            self.values.add(value)

    @property
    def has_labels(self) -> bool:
        """Whether values occur again and again."""
        most = min(max(FEW_VALUES, self.count // 2), MOST_VALUES)
        return 0 < len(self.values) <= most

    def is_like(self, values: Sequence[str]) -> bool:
        """Tell whether values could be of this column."""
        if self.has_labels and (self.count >= MANY_ROWS or self.values.issuperset(values)):
            return self.values.issuperset(values)
        # a comma in a sentence has a space after it
        return all(
            value and not value[0].isspace() and (self.has_spaces or " " not in value)
            for value in values
        )


class StrayQuotes:
    """Looks for quoted fields of several lines which, without the quotes, are rows.

    A stray quote at the beginning of one field and another at the end of a later one make one field
    of all that is between them. Every line of it has as many delimiters as a row. A text of several
    lines has no tabs; commas it may have, but what is between them are no values of other columns.
    """

    def __init__(self, path: str, delimiter: str) -> None:
        self.path, self.delimiter = path, delimiter
        self.columns: list[Column] = []
        # first and last line, and the cells by column, of records that may be several rows
        self.suspects: list[tuple[int, int, dict[int, list[str]]]] = []

    def add(self, line: int, values: Sequence[str], width: int) -> None:
        """Look at the record that starts at a line of a file with so many columns."""
        self.columns = self.columns or [Column() for _ in range(width)]
        breaks = sum(value.count("\n") for value in values)
        if breaks and width > 1:
            self._suspect(line, line + breaks, values, width)
        elif not breaks and len(values) == width:
            for column, value in zip(self.columns, values, strict=True):
                column.add(value)

    def check(self) -> None:
        """Refuse the file if a record is several rows.

        Raises:
            ValueError: If it is; names the lines and the ways out.
        """
        found = [(first, last) for first, last, cells in self.suspects if self._are_rows(cells)]
        if not found:
            return
        named = ", ".join(f"{first} to {last}" for first, last in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        first, last = found[0]
        raise ValueError(
            f"{self.path}:{first}: quotes join the lines {named}{more} to one record, but they "
            f"look like rows of their own: correct the quotes in the lines {first} and {last}; or "
            "add to the task quoting: false, if quotes are plain text, or quoting: true, if these "
            "texts have several lines"
        )

    def _suspect(self, first: int, last: int, values: Sequence[str], width: int) -> None:
        """Keep a record if each line of a field has as many delimiters as a row."""
        if self.delimiter == "\t" and any("\t" in value for value in values if "\n" in value):
            self.suspects.append((first, last, {}))
            return
        for place, value in enumerate(values):
            lines = [line.rstrip("\r").split(self.delimiter) for line in value.split("\n")]
            inner = lines[1:-1]
            if any(len(cells) != width for cells in inner):
                continue
            if len(values) != width and len(inner) > 1:
                self.suspects.append((first, last, {}))
            # the rest of the row with the first quote, and the beginning of that with the last
            elif (len(lines[0]), len(lines[-1])) == (width - place, place + 1) and len(lines) > 1:
                rows = [*enumerate(lines[0], place), *enumerate(lines[-1])]
                rows += [cell for cells in inner for cell in enumerate(cells)]
                cells: dict[int, list[str]] = {}
                for column, cell in rows:
                    if column != place:
                        cells.setdefault(column, []).append(cell)
                self.suspects.append((first, last, cells))

    def _are_rows(self, cells: dict[int, list[str]]) -> bool:
        """Tell whether cells are like their columns: one with labels, or all if none has them."""
        labels = [column for column in cells if self.columns[column].has_labels]
        likely = [self.columns[column].is_like(cells[column]) for column in labels or cells]
        return any(likely) if labels else all(likely)
