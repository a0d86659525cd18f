"""Models from a hub repository.

huggingface_hub says what is there (files, sizes, hashes, the commit behind a revision), where
(``HF_ENDPOINT``), and with which token (``HF_TOKEN`` or a login). The bytes come through our own
:mod:`~mashbox.pull.transfer`: the library keeps nothing of an interrupted download. What its cache already
holds is taken from there, which is also all that is done while ``HF_HUB_OFFLINE`` is set.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import mashbox
from mashbox import catalog
from mashbox.catalog import File, HubSource
from mashbox.errors import GatedRepo, NoNetwork, NotFound, PullError
from mashbox.pull import transfer
from mashbox.pull.choose import choose
from mashbox.pull.plan import Plan, Wanted
from mashbox.pull.verify import Promise

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

ASK_TIMEOUT_S = 30

_TRUE = ("1", "ON", "YES", "TRUE")


def source_of(repo: str, file: str | None) -> HubSource:
    """The source that a user's ``org/repo`` or ``org/repo:file`` means.

    A repository that the catalogue knows, without a file, is the catalogue's choice of file.
    """
    known = catalog.load().by_repo(repo) if file is None else None
    if known is not None and isinstance(known.sources[0], HubSource):
        return known.sources[0]
    return HubSource(repo=repo, files=[File(path=file)] if file else [])


def plan(source: HubSource) -> Plan:
    """Ask the hub (or, offline, its cache) for the source's files. Raises a PullError."""
    if offline():
        return _plan_from_cache(source)
    info = _info(source)
    listed = {file.rfilename: file for file in info.siblings or []}
    format, names = _choose(source, listed)
    commit = info.sha or source.revision
    cached = _cached(source.repo, commit)
    files = [
        Wanted(
            path=name,
            promise=_promise(source, name, _hub_promise(listed[name])),
            url=_url(source.repo, name, commit),
            headers=_headers(),
            cached=cached.get(name),
        )
        for name in names
    ]
    return Plan(format=format, files=files, source=f"hub {source.repo}@{commit}")


def explain(response: httpx.Response) -> PullError:
    """A refusal of one of the files."""
    asked = (response.history[0] if response.history else response).request.url
    match = re.search(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)$", asked.path)
    repo, file = (match[1], match[2]) if match else ("the repository", asked.path)
    # Behind a redirect it is a store of files that refuses, which knows nothing of licences.
    if response.status_code in (401, 403) and not response.history:
        return gated(repo)
    if response.status_code == 404:
        return NotFound(f"{repo} has no file {file} on the hub.", "Look at its files on the hub's page.")
    return PullError(
        f"{file} of {repo} was refused with HTTP {response.status_code} by {response.request.url.host}.",
        "Pull again; if that stays so, look at the hub's status page.",
    )


def gated(repo: str) -> GatedRepo:
    """The error that says where to accept the licence, and how to give the token."""
    import huggingface_hub

    page = f"{endpoint()}/{repo}"
    if huggingface_hub.get_token():
        return GatedRepo(
            f"{repo} is gated, and the token in use has no access to it.",
            f"Accept the licence at {page} with the account that HF_TOKEN belongs to, then pull again.",
        )
    return GatedRepo(
        f"{repo} is gated: it can be fetched only by who has accepted its licence.",
        f"Accept it at {page}, make a token at {endpoint()}/settings/tokens,"
        " then: export HF_TOKEN=hf_... and pull again.",
    )


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, else the library's."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def offline() -> bool:
    """HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE


def _info(source: HubSource) -> "ModelInfo":
    """The repository's files with sizes and hashes, tried again while the hub is busy or out of reach."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RevisionNotFoundError,
    )

    backoff = transfer.Backoff(f"The hub at {endpoint()} could not be reached")
    while True:
        try:
            return HfApi(endpoint=endpoint()).model_info(
                source.repo, revision=source.revision, files_metadata=True, timeout=ASK_TIMEOUT_S
            )
        except GatedRepoError as error:
            raise gated(source.repo) from error
        except RevisionNotFoundError as error:
            raise NotFound(f"{source.repo} has no revision {source.revision!r} on the hub.") from error
        except HFValidationError as error:
            raise NotFound(f"{source.repo!r} can't be a repository's name: {error}.") from error
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status not in transfer.BUSY:
                raise _refused(source.repo, status) from error
            backoff.wait(transfer.Busy(status, error.response.headers), advanced=False)
        except (ValueError, KeyError, TypeError) as error:
            raise PullError(
                f"{endpoint()} does not answer as a hub does.",
                "Check HF_ENDPOINT, and whether a proxy or a login page answers in the hub's place.",
            ) from error
        except Exception as error:
            # The library has moved between HTTP clients: its transport errors are known by name only.
            if not any(kind.__name__ == "TransportError" for kind in type(error).__mro__):
                raise
            backoff.wait(error, advanced=False)


def _refused(repo: str, status: int) -> PullError:
    if status in (401, 403, 404):
        # The hub does not tell a missing repository from a private one.
        return NotFound(
            f"The hub at {endpoint()} shows no repository {repo} (HTTP {status}).",
            "Check the name; for a private repository set HF_TOKEN.",
        )
    return PullError(f"The hub at {endpoint()} refused to list {repo} with HTTP {status}.")


def _choose(source: HubSource, names: Iterable[str]) -> Any:
    given = [file.path for file in source.files]
    return choose(names, source.repo, given[0] if given else None)


def _hub_promise(listed: Any) -> Promise:
    if listed.lfs is not None:
        return Promise(bytes=listed.lfs.size, sha256=listed.lfs.sha256)
    return Promise(bytes=listed.size, git=listed.blob_id)


def _promise(source: HubSource, name: str, offered: Promise) -> Promise:
    """What the hub says of a file, overruled by a hash that the catalogue pins."""
    for file in source.files:
        if file.path == name and file.sha256 is not None:
            return Promise(bytes=file.bytes or offered.bytes, sha256=file.sha256)
    return offered


def _url(repo: str, name: str, commit: str) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(repo, name, revision=commit, endpoint=endpoint())


def _headers() -> dict[str, str]:
    from huggingface_hub import constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    agent = {"user-agent": f"mashbox/{mashbox.__version__}"}
    return {**agent, "authorization": f"Bearer {token}"} if token else agent


def _plan_from_cache(source: HubSource) -> Plan:
    cached = _cached(source.repo, source.revision)
    if not cached:
        raise NoNetwork(
            f"{source.repo} is not in the hub's cache, and HF_HUB_OFFLINE is set.",
            "Unset HF_HUB_OFFLINE to fetch it.",
        )
    format, names = _choose(source, cached)
    files = [
        Wanted(path=name, promise=_promise(source, name, _blob_promise(cached[name])), cached=cached[name])
        for name in names
    ]
    return Plan(format=format, files=files, source=f"hub {source.repo}@{source.revision} (cache)")


def _cached(repo: str, revision: str) -> dict[str, Path]:
    """The files of a revision that the hub's own cache holds, by their name in the repository."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    root = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE)
    folder = root / repo_folder_name(repo_id=repo, repo_type="model")
    reference = folder / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    found = (path for path in snapshot.rglob("*") if path.is_file())
    return {path.relative_to(snapshot).as_posix(): path for path in found}


def _blob_promise(path: Path) -> Promise:
    """The cache names a blob by its hash: SHA-256, or git's for small files."""
    blob = path.readlink().name if path.is_symlink() else ""
    size = path.stat().st_size
    if re.fullmatch("[0-9a-f]{64}", blob):
        return Promise(bytes=size, sha256=blob)
    return Promise(bytes=size, git=blob if re.fullmatch("[0-9a-f]{40}", blob) else None)
