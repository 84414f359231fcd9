"""Model folders from the Hugging Face hub: only the files that a renderer reads."""

import functools
import logging
import pathlib

from fastrender.model_folder.files import FolderFiles, ModelFolderError

WANTED_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "sentence_*_config.json",
)

_logger = logging.getLogger(__name__)


def download(
    repository: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
) -> FolderFiles:
    """The files of a hub repository, fetched if they are not on the disk yet.

    A progress bar is drawn on a terminal. HF_HUB_OFFLINE, HF_TOKEN and the other variables of
    huggingface-hub hold.
    """
    # It takes a fifth of a second to import, which a local folder need not wait for.
    import huggingface_hub
    from huggingface_hub import errors

    where = f"`{repository}`" + (f" at revision `{revision}`" if revision else "")
    try:
        path = huggingface_hub.snapshot_download(
            repository,
            revision=revision,
            token=token,
            cache_dir=cache_folder,
            allow_patterns=list(WANTED_FILES),
        )
    except errors.GatedRepoError as error:
        raise ModelFolderError(
            f"the hub lets only people whom its owner admitted read `{repository}`: "
            "ask for access on its page, and set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelFolderError(
            f"there is no folder `{repository}`, and no such model on the hub that this HF_TOKEN "
            "may read"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelFolderError(f"the hub's `{repository}` has no revision `{revision}`") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        why = "HF_HUB_OFFLINE is set" if _is_offline() else "the hub cannot be reached"
        raise ModelFolderError(
            f"there is no folder {where}, no copy of it in the hub's cache, and {why}"
        ) from error
    except errors.HFValidationError as error:
        raise ModelFolderError(f"`{repository}` is neither a folder nor a hub id") from error
    except Exception as error:  # The client lets errors of its HTTP library through.
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelFolderError(f"cannot fetch {where} from the hub: {why}") from error
    _logger.debug("%s is in %s", where, path)
    return FolderFiles(
        repository,
        pathlib.Path(path),
        functools.partial(_names_on_the_hub, repository, revision, token),
    )


def _names_on_the_hub(repository: str, revision: str | None, token: str | None) -> list[str]:
    import huggingface_hub

    try:
        names = huggingface_hub.HfApi(token=token).list_repo_files(repository, revision=revision)
    except Exception:  # As above; this only makes a message better.
        return []
    return [name for name in names if "/" not in name]


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)
