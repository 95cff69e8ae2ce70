# One image for every service; compose says which command each of them runs.
FROM python:3.12-slim-bookworm

# "repro" adds torch for workers that run reproductions.
ARG EXTRAS=""

ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PITSTOP_DATA=/data

RUN useradd --create-home --uid 10001 pitstop \
    && install --directory --owner=pitstop --group=pitstop --mode=0700 /data

# The sandbox of reproductions.
RUN if [ -n "$EXTRAS" ]; then apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*; fi

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE manage.py ./
COPY kb ./kb
COPY triage ./triage
COPY templates ./templates
RUN pip install --constraint constraints.txt --editable ".${EXTRAS:+[$EXTRAS]}"

USER pitstop
VOLUME /data
EXPOSE 8000
CMD ["uvicorn", "triage.config.asgi:application", "--host", "0.0.0.0", "--port", "8000"]
