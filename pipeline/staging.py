"""The file that marks a directory that this program wrote and may replace."""

from typing import Final

MARK: Final = "_kafka_quota_pipeline"
OF_LOG: Final = "a usage log, "
BY: Final = "written by kafka-quota-pipeline; replaced as a whole when it runs again\n"
