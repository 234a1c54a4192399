"""Logs what the dataplane does beside the passes."""

import logging

from nodeagent.model.reports import CleaningReport, PurgeReport

logger = logging.getLogger(__name__)


class DataplaneLog:
    """Logs deletions."""

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        if report.deleted:
            logger.info(
                "conntrack %s: ended %d UDP flows to endpoints that are gone", report.family.value, report.deleted
            )

    def affinity_purged(self, report: PurgeReport) -> None:
        logger.info(
            "affinity %s: forgot %d clients of endpoints that are gone, in %.2f s",
            report.family.value,
            report.forgotten,
            report.seconds,
        )
