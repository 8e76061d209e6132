"""The program for spark-submit: ``spark-submit … submit.py COMMAND …``, with the arguments of kafka-quota-pipeline.

The package is installed on the driver and the executors, or sent to them with ``--py-files``.
"""

import sys

from kafka_quota_proxy.pipeline.__main__ import main

sys.exit(main())
