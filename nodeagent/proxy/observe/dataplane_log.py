"""Logs what the dataplane does beside the passes."""

import logging

from nodeagent.model.reports import CleaningReport, DriftReport, PurgeReport

logger = logging.getLogger(__name__)


class DataplaneLog:
    """Logs deletions, and what was not as programmed."""

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

    def drift_found(self, report: DriftReport) -> None:
        how = (
            "after a change that the kernel reported"
            if report.reported
            else "by the audit; the kernel had reported nothing"
        )
        logger.warning("drift of %s (%s): %s; found %s", report.object, report.kind, report.detail, how)
